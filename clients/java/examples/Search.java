import io.grpc.Channel;
import io.grpc.ClientInterceptors;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Metadata;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.MetadataUtils;
import io.grpc.stub.StreamObserver;
import java.util.Locale;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import tandem.v1.Content;
import tandem.v1.IngestItemsRequest;
import tandem.v1.IngestItemsResponse;
import tandem.v1.Item;
import tandem.v1.Modality;
import tandem.v1.SearchItemsRequest;
import tandem.v1.SearchServiceGrpc;
import tandem.v1.SearchServiceGrpc.SearchServiceBlockingStub;
import tandem.v1.SearchServiceGrpc.SearchServiceStub;
import tandem.v1.StreamSearchItemsRequest;

/**
 * Stores two texts and searches them, over gRPC. The argument is the server's address, by default
 * 127.0.0.1:7400; TANDEM_TOKEN is the token of a server that asks for one.
 */
public final class Search {
  private static final String INDEX_ID = "cups";
  private static final Metadata.Key<String> AUTHORIZATION =
      Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);
  private static final Metadata.Key<String> REASON =
      Metadata.Key.of("tandem-reason", Metadata.ASCII_STRING_MARSHALLER);

  public static void main(String[] arguments) throws Exception {
    String address = arguments.length > 0 ? arguments[0] : "127.0.0.1:7400";
    // For a server of this machine. Any other needs TLS, which is the default without usePlaintext.
    ManagedChannel connection = ManagedChannelBuilder.forTarget(address).usePlaintext().build();
    try {
      Channel channel = withToken(connection, System.getenv("TANDEM_TOKEN"));
      // An ingest lasts as long as its items do: it has no deadline.
      String consistencyToken = store(SearchServiceGrpc.newStub(channel));
      SearchServiceBlockingStub client = SearchServiceGrpc.newBlockingStub(channel);
      SearchItemsRequest query =
          SearchItemsRequest.newBuilder()
              .setIndexId(INDEX_ID)
              .setQuery(text("a red cup"))
              .setTargetModality(Modality.MODALITY_TEXT)
              .addConsistencyTokens(consistencyToken)
              .build();
      search(client, query);
      streamSearch(client, query);
      readReason(client);
    } finally {
      connection.shutdownNow().awaitTermination(5, TimeUnit.SECONDS);
    }
  }

  private static Channel withToken(Channel channel, String token) {
    if (token == null || token.isEmpty()) {
      return channel;
    }
    Metadata headers = new Metadata();
    headers.put(AUTHORIZATION, "Bearer " + token);
    return ClientInterceptors.intercept(
        channel, MetadataUtils.newAttachHeadersInterceptor(headers));
  }

  /** Streams one batch of items and returns the token by which a search waits for them. */
  private static String store(SearchServiceStub client) throws Exception {
    StoredItems stored = new StoredItems();
    StreamObserver<IngestItemsRequest> batches = client.ingestItems(stored);
    batches.onNext(
        IngestItemsRequest.newBuilder()
            .setIndexId(INDEX_ID)
            .addItems(item("cup-1", "a red cup"))
            .addItems(item("cup-2", "a blue cup on a table"))
            .build());
    batches.onCompleted();
    return stored.token.get();
  }

  /** Reads the responses of an ingest, which come on gRPC's threads. */
  private static final class StoredItems implements StreamObserver<IngestItemsResponse> {
    final CompletableFuture<String> token = new CompletableFuture<>();
    private String last = "";

    @Override
    public void onNext(IngestItemsResponse response) {
      last = response.getConsistencyToken();
      response
          .getResultsList()
          .forEach(
              result ->
                  System.out.println(
                      "stored " + result.getItemId() + " " + result.getError().getMessage()));
    }

    @Override
    public void onError(Throwable error) {
      token.completeExceptionally(error);
    }

    @Override
    public void onCompleted() {
      token.complete(last);
    }
  }

  private static void search(SearchServiceBlockingStub client, SearchItemsRequest query) {
    inTime(client)
        .searchItems(query)
        .getItemsList()
        .forEach(
            item ->
                System.out.printf(
                    Locale.ROOT,
                    "%d %s %.3f%n",
                    item.getFinalRank(),
                    item.getItemId(),
                    item.getSimilarity()));
  }

  /** Reads two answers: in the bi-encoder's order, and in the final one. */
  private static void streamSearch(SearchServiceBlockingStub client, SearchItemsRequest query) {
    inTime(client)
        .streamSearchItems(StreamSearchItemsRequest.newBuilder().setSearch(query).build())
        .forEachRemaining(
            response ->
                System.out.println(
                    response.getPhase() + " " + response.getAnswer().getItemsCount()));
  }

  /** Makes an error, which has gRPC's code and, in the trailing metadata, Tandem's reason. */
  private static void readReason(SearchServiceBlockingStub client) {
    SearchItemsRequest missing =
        SearchItemsRequest.newBuilder().setIndexId("none").setQuery(text("a cup")).build();
    try {
      inTime(client).searchItems(missing);
    } catch (StatusRuntimeException error) {
      // An error that is not the server's, such as a lost connection, has no reason.
      Metadata trailers = error.getTrailers();
      if (trailers == null || !trailers.containsKey(REASON)) {
        throw error;
      }
      System.out.println(error.getStatus().getCode() + " " + trailers.get(REASON));
      return;
    }
    throw new IllegalStateException("there is an index with the name none");
  }

  /** A stub's deadline begins where it is set: each call takes a stub of its own. */
  private static SearchServiceBlockingStub inTime(SearchServiceBlockingStub client) {
    return client.withDeadlineAfter(30, TimeUnit.SECONDS);
  }

  private static Item item(String itemId, String value) {
    return Item.newBuilder().setItemId(itemId).setContent(text(value)).build();
  }

  private static Content text(String value) {
    return Content.newBuilder().setText(value).build();
  }
}
