package tandem.v1;

import static io.grpc.MethodDescriptor.generateFullMethodName;

/**
 * <pre>
 * The public API for stored items by id, and for the models on contents that
 * are not stored.
 * </pre>
 */
@javax.annotation.Generated(
    value = "by gRPC proto compiler",
    comments = "Source: tandem/v1/content_service.proto")
@io.grpc.stub.annotations.GrpcGenerated
public final class ContentServiceGrpc {

  private ContentServiceGrpc() {}

  public static final String SERVICE_NAME = "tandem.v1.ContentService";

  // Static method descriptors that strictly reflect the proto.
  private static volatile io.grpc.MethodDescriptor<tandem.v1.FetchItemsRequest,
      tandem.v1.FetchItemsResponse> getFetchItemsMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "FetchItems",
      requestType = tandem.v1.FetchItemsRequest.class,
      responseType = tandem.v1.FetchItemsResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<tandem.v1.FetchItemsRequest,
      tandem.v1.FetchItemsResponse> getFetchItemsMethod() {
    io.grpc.MethodDescriptor<tandem.v1.FetchItemsRequest, tandem.v1.FetchItemsResponse> getFetchItemsMethod;
    if ((getFetchItemsMethod = ContentServiceGrpc.getFetchItemsMethod) == null) {
      synchronized (ContentServiceGrpc.class) {
        if ((getFetchItemsMethod = ContentServiceGrpc.getFetchItemsMethod) == null) {
          ContentServiceGrpc.getFetchItemsMethod = getFetchItemsMethod =
              io.grpc.MethodDescriptor.<tandem.v1.FetchItemsRequest, tandem.v1.FetchItemsResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "FetchItems"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  tandem.v1.FetchItemsRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  tandem.v1.FetchItemsResponse.getDefaultInstance()))
              .setSchemaDescriptor(new ContentServiceMethodDescriptorSupplier("FetchItems"))
              .build();
        }
      }
    }
    return getFetchItemsMethod;
  }

  private static volatile io.grpc.MethodDescriptor<tandem.v1.ListItemsRequest,
      tandem.v1.ListItemsResponse> getListItemsMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "ListItems",
      requestType = tandem.v1.ListItemsRequest.class,
      responseType = tandem.v1.ListItemsResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<tandem.v1.ListItemsRequest,
      tandem.v1.ListItemsResponse> getListItemsMethod() {
    io.grpc.MethodDescriptor<tandem.v1.ListItemsRequest, tandem.v1.ListItemsResponse> getListItemsMethod;
    if ((getListItemsMethod = ContentServiceGrpc.getListItemsMethod) == null) {
      synchronized (ContentServiceGrpc.class) {
        if ((getListItemsMethod = ContentServiceGrpc.getListItemsMethod) == null) {
          ContentServiceGrpc.getListItemsMethod = getListItemsMethod =
              io.grpc.MethodDescriptor.<tandem.v1.ListItemsRequest, tandem.v1.ListItemsResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "ListItems"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  tandem.v1.ListItemsRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  tandem.v1.ListItemsResponse.getDefaultInstance()))
              .setSchemaDescriptor(new ContentServiceMethodDescriptorSupplier("ListItems"))
              .build();
        }
      }
    }
    return getListItemsMethod;
  }

  private static volatile io.grpc.MethodDescriptor<tandem.v1.EmbedContentsRequest,
      tandem.v1.EmbedContentsResponse> getEmbedContentsMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "EmbedContents",
      requestType = tandem.v1.EmbedContentsRequest.class,
      responseType = tandem.v1.EmbedContentsResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<tandem.v1.EmbedContentsRequest,
      tandem.v1.EmbedContentsResponse> getEmbedContentsMethod() {
    io.grpc.MethodDescriptor<tandem.v1.EmbedContentsRequest, tandem.v1.EmbedContentsResponse> getEmbedContentsMethod;
    if ((getEmbedContentsMethod = ContentServiceGrpc.getEmbedContentsMethod) == null) {
      synchronized (ContentServiceGrpc.class) {
        if ((getEmbedContentsMethod = ContentServiceGrpc.getEmbedContentsMethod) == null) {
          ContentServiceGrpc.getEmbedContentsMethod = getEmbedContentsMethod =
              io.grpc.MethodDescriptor.<tandem.v1.EmbedContentsRequest, tandem.v1.EmbedContentsResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "EmbedContents"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  tandem.v1.EmbedContentsRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  tandem.v1.EmbedContentsResponse.getDefaultInstance()))
              .setSchemaDescriptor(new ContentServiceMethodDescriptorSupplier("EmbedContents"))
              .build();
        }
      }
    }
    return getEmbedContentsMethod;
  }

  private static volatile io.grpc.MethodDescriptor<tandem.v1.ScoreDocumentsRequest,
      tandem.v1.ScoreDocumentsResponse> getScoreDocumentsMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "ScoreDocuments",
      requestType = tandem.v1.ScoreDocumentsRequest.class,
      responseType = tandem.v1.ScoreDocumentsResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<tandem.v1.ScoreDocumentsRequest,
      tandem.v1.ScoreDocumentsResponse> getScoreDocumentsMethod() {
    io.grpc.MethodDescriptor<tandem.v1.ScoreDocumentsRequest, tandem.v1.ScoreDocumentsResponse> getScoreDocumentsMethod;
    if ((getScoreDocumentsMethod = ContentServiceGrpc.getScoreDocumentsMethod) == null) {
      synchronized (ContentServiceGrpc.class) {
        if ((getScoreDocumentsMethod = ContentServiceGrpc.getScoreDocumentsMethod) == null) {
          ContentServiceGrpc.getScoreDocumentsMethod = getScoreDocumentsMethod =
              io.grpc.MethodDescriptor.<tandem.v1.ScoreDocumentsRequest, tandem.v1.ScoreDocumentsResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "ScoreDocuments"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  tandem.v1.ScoreDocumentsRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  tandem.v1.ScoreDocumentsResponse.getDefaultInstance()))
              .setSchemaDescriptor(new ContentServiceMethodDescriptorSupplier("ScoreDocuments"))
              .build();
        }
      }
    }
    return getScoreDocumentsMethod;
  }

  /**
   * Creates a new async stub that supports all call types for the service
   */
  public static ContentServiceStub newStub(io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<ContentServiceStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<ContentServiceStub>() {
        @java.lang.Override
        public ContentServiceStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new ContentServiceStub(channel, callOptions);
        }
      };
    return ContentServiceStub.newStub(factory, channel);
  }

  /**
   * Creates a new blocking-style stub that supports unary and streaming output calls on the service
   */
  public static ContentServiceBlockingStub newBlockingStub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<ContentServiceBlockingStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<ContentServiceBlockingStub>() {
        @java.lang.Override
        public ContentServiceBlockingStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new ContentServiceBlockingStub(channel, callOptions);
        }
      };
    return ContentServiceBlockingStub.newStub(factory, channel);
  }

  /**
   * Creates a new ListenableFuture-style stub that supports unary calls on the service
   */
  public static ContentServiceFutureStub newFutureStub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<ContentServiceFutureStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<ContentServiceFutureStub>() {
        @java.lang.Override
        public ContentServiceFutureStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new ContentServiceFutureStub(channel, callOptions);
        }
      };
    return ContentServiceFutureStub.newStub(factory, channel);
  }

  /**
   * <pre>
   * The public API for stored items by id, and for the models on contents that
   * are not stored.
   * </pre>
   */
  public static abstract class ContentServiceImplBase implements io.grpc.BindableService {

    /**
     * <pre>
     * Returns items by id, with contents and attributes.
     * </pre>
     */
    public void fetchItems(tandem.v1.FetchItemsRequest request,
        io.grpc.stub.StreamObserver<tandem.v1.FetchItemsResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getFetchItemsMethod(), responseObserver);
    }

    /**
     * <pre>
     * Returns the ids of an index's items, page by page, in byte order.
     * </pre>
     */
    public void listItems(tandem.v1.ListItemsRequest request,
        io.grpc.stub.StreamObserver<tandem.v1.ListItemsResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getListItemsMethod(), responseObserver);
    }

    /**
     * <pre>
     * Embeds contents. One that fails does not affect the others.
     * </pre>
     */
    public void embedContents(tandem.v1.EmbedContentsRequest request,
        io.grpc.stub.StreamObserver<tandem.v1.EmbedContentsResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getEmbedContentsMethod(), responseObserver);
    }

    /**
     * <pre>
     * Scores documents against a query with the cross-encoder, without sorting.
     * </pre>
     */
    public void scoreDocuments(tandem.v1.ScoreDocumentsRequest request,
        io.grpc.stub.StreamObserver<tandem.v1.ScoreDocumentsResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getScoreDocumentsMethod(), responseObserver);
    }

    @java.lang.Override public final io.grpc.ServerServiceDefinition bindService() {
      return io.grpc.ServerServiceDefinition.builder(getServiceDescriptor())
          .addMethod(
            getFetchItemsMethod(),
            io.grpc.stub.ServerCalls.asyncUnaryCall(
              new MethodHandlers<
                tandem.v1.FetchItemsRequest,
                tandem.v1.FetchItemsResponse>(
                  this, METHODID_FETCH_ITEMS)))
          .addMethod(
            getListItemsMethod(),
            io.grpc.stub.ServerCalls.asyncUnaryCall(
              new MethodHandlers<
                tandem.v1.ListItemsRequest,
                tandem.v1.ListItemsResponse>(
                  this, METHODID_LIST_ITEMS)))
          .addMethod(
            getEmbedContentsMethod(),
            io.grpc.stub.ServerCalls.asyncUnaryCall(
              new MethodHandlers<
                tandem.v1.EmbedContentsRequest,
                tandem.v1.EmbedContentsResponse>(
                  this, METHODID_EMBED_CONTENTS)))
          .addMethod(
            getScoreDocumentsMethod(),
            io.grpc.stub.ServerCalls.asyncUnaryCall(
              new MethodHandlers<
                tandem.v1.ScoreDocumentsRequest,
                tandem.v1.ScoreDocumentsResponse>(
                  this, METHODID_SCORE_DOCUMENTS)))
          .build();
    }
  }

  /**
   * <pre>
   * The public API for stored items by id, and for the models on contents that
   * are not stored.
   * </pre>
   */
  public static final class ContentServiceStub extends io.grpc.stub.AbstractAsyncStub<ContentServiceStub> {
    private ContentServiceStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected ContentServiceStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new ContentServiceStub(channel, callOptions);
    }

    /**
     * <pre>
     * Returns items by id, with contents and attributes.
     * </pre>
     */
    public void fetchItems(tandem.v1.FetchItemsRequest request,
        io.grpc.stub.StreamObserver<tandem.v1.FetchItemsResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getFetchItemsMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Returns the ids of an index's items, page by page, in byte order.
     * </pre>
     */
    public void listItems(tandem.v1.ListItemsRequest request,
        io.grpc.stub.StreamObserver<tandem.v1.ListItemsResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getListItemsMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Embeds contents. One that fails does not affect the others.
     * </pre>
     */
    public void embedContents(tandem.v1.EmbedContentsRequest request,
        io.grpc.stub.StreamObserver<tandem.v1.EmbedContentsResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getEmbedContentsMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Scores documents against a query with the cross-encoder, without sorting.
     * </pre>
     */
    public void scoreDocuments(tandem.v1.ScoreDocumentsRequest request,
        io.grpc.stub.StreamObserver<tandem.v1.ScoreDocumentsResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getScoreDocumentsMethod(), getCallOptions()), request, responseObserver);
    }
  }

  /**
   * <pre>
   * The public API for stored items by id, and for the models on contents that
   * are not stored.
   * </pre>
   */
  public static final class ContentServiceBlockingStub extends io.grpc.stub.AbstractBlockingStub<ContentServiceBlockingStub> {
    private ContentServiceBlockingStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected ContentServiceBlockingStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new ContentServiceBlockingStub(channel, callOptions);
    }

    /**
     * <pre>
     * Returns items by id, with contents and attributes.
     * </pre>
     */
    public tandem.v1.FetchItemsResponse fetchItems(tandem.v1.FetchItemsRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getFetchItemsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Returns the ids of an index's items, page by page, in byte order.
     * </pre>
     */
    public tandem.v1.ListItemsResponse listItems(tandem.v1.ListItemsRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getListItemsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Embeds contents. One that fails does not affect the others.
     * </pre>
     */
    public tandem.v1.EmbedContentsResponse embedContents(tandem.v1.EmbedContentsRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getEmbedContentsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Scores documents against a query with the cross-encoder, without sorting.
     * </pre>
     */
    public tandem.v1.ScoreDocumentsResponse scoreDocuments(tandem.v1.ScoreDocumentsRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getScoreDocumentsMethod(), getCallOptions(), request);
    }
  }

  /**
   * <pre>
   * The public API for stored items by id, and for the models on contents that
   * are not stored.
   * </pre>
   */
  public static final class ContentServiceFutureStub extends io.grpc.stub.AbstractFutureStub<ContentServiceFutureStub> {
    private ContentServiceFutureStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected ContentServiceFutureStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new ContentServiceFutureStub(channel, callOptions);
    }

    /**
     * <pre>
     * Returns items by id, with contents and attributes.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<tandem.v1.FetchItemsResponse> fetchItems(
        tandem.v1.FetchItemsRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getFetchItemsMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Returns the ids of an index's items, page by page, in byte order.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<tandem.v1.ListItemsResponse> listItems(
        tandem.v1.ListItemsRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getListItemsMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Embeds contents. One that fails does not affect the others.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<tandem.v1.EmbedContentsResponse> embedContents(
        tandem.v1.EmbedContentsRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getEmbedContentsMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Scores documents against a query with the cross-encoder, without sorting.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<tandem.v1.ScoreDocumentsResponse> scoreDocuments(
        tandem.v1.ScoreDocumentsRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getScoreDocumentsMethod(), getCallOptions()), request);
    }
  }

  private static final int METHODID_FETCH_ITEMS = 0;
  private static final int METHODID_LIST_ITEMS = 1;
  private static final int METHODID_EMBED_CONTENTS = 2;
  private static final int METHODID_SCORE_DOCUMENTS = 3;

  private static final class MethodHandlers<Req, Resp> implements
      io.grpc.stub.ServerCalls.UnaryMethod<Req, Resp>,
      io.grpc.stub.ServerCalls.ServerStreamingMethod<Req, Resp>,
      io.grpc.stub.ServerCalls.ClientStreamingMethod<Req, Resp>,
      io.grpc.stub.ServerCalls.BidiStreamingMethod<Req, Resp> {
    private final ContentServiceImplBase serviceImpl;
    private final int methodId;

    MethodHandlers(ContentServiceImplBase serviceImpl, int methodId) {
      this.serviceImpl = serviceImpl;
      this.methodId = methodId;
    }

    @java.lang.Override
    @java.lang.SuppressWarnings("unchecked")
    public void invoke(Req request, io.grpc.stub.StreamObserver<Resp> responseObserver) {
      switch (methodId) {
        case METHODID_FETCH_ITEMS:
          serviceImpl.fetchItems((tandem.v1.FetchItemsRequest) request,
              (io.grpc.stub.StreamObserver<tandem.v1.FetchItemsResponse>) responseObserver);
          break;
        case METHODID_LIST_ITEMS:
          serviceImpl.listItems((tandem.v1.ListItemsRequest) request,
              (io.grpc.stub.StreamObserver<tandem.v1.ListItemsResponse>) responseObserver);
          break;
        case METHODID_EMBED_CONTENTS:
          serviceImpl.embedContents((tandem.v1.EmbedContentsRequest) request,
              (io.grpc.stub.StreamObserver<tandem.v1.EmbedContentsResponse>) responseObserver);
          break;
        case METHODID_SCORE_DOCUMENTS:
          serviceImpl.scoreDocuments((tandem.v1.ScoreDocumentsRequest) request,
              (io.grpc.stub.StreamObserver<tandem.v1.ScoreDocumentsResponse>) responseObserver);
          break;
        default:
          throw new AssertionError();
      }
    }

    @java.lang.Override
    @java.lang.SuppressWarnings("unchecked")
    public io.grpc.stub.StreamObserver<Req> invoke(
        io.grpc.stub.StreamObserver<Resp> responseObserver) {
      switch (methodId) {
        default:
          throw new AssertionError();
      }
    }
  }

  private static abstract class ContentServiceBaseDescriptorSupplier
      implements io.grpc.protobuf.ProtoFileDescriptorSupplier, io.grpc.protobuf.ProtoServiceDescriptorSupplier {
    ContentServiceBaseDescriptorSupplier() {}

    @java.lang.Override
    public com.google.protobuf.Descriptors.FileDescriptor getFileDescriptor() {
      return tandem.v1.ContentServiceProto.getDescriptor();
    }

    @java.lang.Override
    public com.google.protobuf.Descriptors.ServiceDescriptor getServiceDescriptor() {
      return getFileDescriptor().findServiceByName("ContentService");
    }
  }

  private static final class ContentServiceFileDescriptorSupplier
      extends ContentServiceBaseDescriptorSupplier {
    ContentServiceFileDescriptorSupplier() {}
  }

  private static final class ContentServiceMethodDescriptorSupplier
      extends ContentServiceBaseDescriptorSupplier
      implements io.grpc.protobuf.ProtoMethodDescriptorSupplier {
    private final String methodName;

    ContentServiceMethodDescriptorSupplier(String methodName) {
      this.methodName = methodName;
    }

    @java.lang.Override
    public com.google.protobuf.Descriptors.MethodDescriptor getMethodDescriptor() {
      return getServiceDescriptor().findMethodByName(methodName);
    }
  }

  private static volatile io.grpc.ServiceDescriptor serviceDescriptor;

  public static io.grpc.ServiceDescriptor getServiceDescriptor() {
    io.grpc.ServiceDescriptor result = serviceDescriptor;
    if (result == null) {
      synchronized (ContentServiceGrpc.class) {
        result = serviceDescriptor;
        if (result == null) {
          serviceDescriptor = result = io.grpc.ServiceDescriptor.newBuilder(SERVICE_NAME)
              .setSchemaDescriptor(new ContentServiceFileDescriptorSupplier())
              .addMethod(getFetchItemsMethod())
              .addMethod(getListItemsMethod())
              .addMethod(getEmbedContentsMethod())
              .addMethod(getScoreDocumentsMethod())
              .build();
        }
      }
    }
    return result;
  }
}
