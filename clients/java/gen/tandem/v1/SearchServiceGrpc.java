package tandem.v1;

import static io.grpc.MethodDescriptor.generateFullMethodName;

/**
 * <pre>
 * The public API: search, ingest and removal, and the state of an index.
 * </pre>
 */
@javax.annotation.Generated(
    value = "by gRPC proto compiler",
    comments = "Source: tandem/v1/search_service.proto")
@io.grpc.stub.annotations.GrpcGenerated
public final class SearchServiceGrpc {

  private SearchServiceGrpc() {}

  public static final String SERVICE_NAME = "tandem.v1.SearchService";

  // Static method descriptors that strictly reflect the proto.
  private static volatile io.grpc.MethodDescriptor<tandem.v1.SearchItemsRequest,
      tandem.v1.SearchItemsResponse> getSearchItemsMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "SearchItems",
      requestType = tandem.v1.SearchItemsRequest.class,
      responseType = tandem.v1.SearchItemsResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<tandem.v1.SearchItemsRequest,
      tandem.v1.SearchItemsResponse> getSearchItemsMethod() {
    io.grpc.MethodDescriptor<tandem.v1.SearchItemsRequest, tandem.v1.SearchItemsResponse> getSearchItemsMethod;
    if ((getSearchItemsMethod = SearchServiceGrpc.getSearchItemsMethod) == null) {
      synchronized (SearchServiceGrpc.class) {
        if ((getSearchItemsMethod = SearchServiceGrpc.getSearchItemsMethod) == null) {
          SearchServiceGrpc.getSearchItemsMethod = getSearchItemsMethod =
              io.grpc.MethodDescriptor.<tandem.v1.SearchItemsRequest, tandem.v1.SearchItemsResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "SearchItems"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  tandem.v1.SearchItemsRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  tandem.v1.SearchItemsResponse.getDefaultInstance()))
              .setSchemaDescriptor(new SearchServiceMethodDescriptorSupplier("SearchItems"))
              .build();
        }
      }
    }
    return getSearchItemsMethod;
  }

  private static volatile io.grpc.MethodDescriptor<tandem.v1.StreamSearchItemsRequest,
      tandem.v1.StreamSearchItemsResponse> getStreamSearchItemsMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "StreamSearchItems",
      requestType = tandem.v1.StreamSearchItemsRequest.class,
      responseType = tandem.v1.StreamSearchItemsResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.SERVER_STREAMING)
  public static io.grpc.MethodDescriptor<tandem.v1.StreamSearchItemsRequest,
      tandem.v1.StreamSearchItemsResponse> getStreamSearchItemsMethod() {
    io.grpc.MethodDescriptor<tandem.v1.StreamSearchItemsRequest, tandem.v1.StreamSearchItemsResponse> getStreamSearchItemsMethod;
    if ((getStreamSearchItemsMethod = SearchServiceGrpc.getStreamSearchItemsMethod) == null) {
      synchronized (SearchServiceGrpc.class) {
        if ((getStreamSearchItemsMethod = SearchServiceGrpc.getStreamSearchItemsMethod) == null) {
          SearchServiceGrpc.getStreamSearchItemsMethod = getStreamSearchItemsMethod =
              io.grpc.MethodDescriptor.<tandem.v1.StreamSearchItemsRequest, tandem.v1.StreamSearchItemsResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.SERVER_STREAMING)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "StreamSearchItems"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  tandem.v1.StreamSearchItemsRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  tandem.v1.StreamSearchItemsResponse.getDefaultInstance()))
              .setSchemaDescriptor(new SearchServiceMethodDescriptorSupplier("StreamSearchItems"))
              .build();
        }
      }
    }
    return getStreamSearchItemsMethod;
  }

  private static volatile io.grpc.MethodDescriptor<tandem.v1.BatchSearchItemsRequest,
      tandem.v1.BatchSearchItemsResponse> getBatchSearchItemsMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "BatchSearchItems",
      requestType = tandem.v1.BatchSearchItemsRequest.class,
      responseType = tandem.v1.BatchSearchItemsResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<tandem.v1.BatchSearchItemsRequest,
      tandem.v1.BatchSearchItemsResponse> getBatchSearchItemsMethod() {
    io.grpc.MethodDescriptor<tandem.v1.BatchSearchItemsRequest, tandem.v1.BatchSearchItemsResponse> getBatchSearchItemsMethod;
    if ((getBatchSearchItemsMethod = SearchServiceGrpc.getBatchSearchItemsMethod) == null) {
      synchronized (SearchServiceGrpc.class) {
        if ((getBatchSearchItemsMethod = SearchServiceGrpc.getBatchSearchItemsMethod) == null) {
          SearchServiceGrpc.getBatchSearchItemsMethod = getBatchSearchItemsMethod =
              io.grpc.MethodDescriptor.<tandem.v1.BatchSearchItemsRequest, tandem.v1.BatchSearchItemsResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "BatchSearchItems"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  tandem.v1.BatchSearchItemsRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  tandem.v1.BatchSearchItemsResponse.getDefaultInstance()))
              .setSchemaDescriptor(new SearchServiceMethodDescriptorSupplier("BatchSearchItems"))
              .build();
        }
      }
    }
    return getBatchSearchItemsMethod;
  }

  private static volatile io.grpc.MethodDescriptor<tandem.v1.IngestItemsRequest,
      tandem.v1.IngestItemsResponse> getIngestItemsMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "IngestItems",
      requestType = tandem.v1.IngestItemsRequest.class,
      responseType = tandem.v1.IngestItemsResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.BIDI_STREAMING)
  public static io.grpc.MethodDescriptor<tandem.v1.IngestItemsRequest,
      tandem.v1.IngestItemsResponse> getIngestItemsMethod() {
    io.grpc.MethodDescriptor<tandem.v1.IngestItemsRequest, tandem.v1.IngestItemsResponse> getIngestItemsMethod;
    if ((getIngestItemsMethod = SearchServiceGrpc.getIngestItemsMethod) == null) {
      synchronized (SearchServiceGrpc.class) {
        if ((getIngestItemsMethod = SearchServiceGrpc.getIngestItemsMethod) == null) {
          SearchServiceGrpc.getIngestItemsMethod = getIngestItemsMethod =
              io.grpc.MethodDescriptor.<tandem.v1.IngestItemsRequest, tandem.v1.IngestItemsResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.BIDI_STREAMING)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "IngestItems"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  tandem.v1.IngestItemsRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  tandem.v1.IngestItemsResponse.getDefaultInstance()))
              .setSchemaDescriptor(new SearchServiceMethodDescriptorSupplier("IngestItems"))
              .build();
        }
      }
    }
    return getIngestItemsMethod;
  }

  private static volatile io.grpc.MethodDescriptor<tandem.v1.RemoveItemsRequest,
      tandem.v1.RemoveItemsResponse> getRemoveItemsMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "RemoveItems",
      requestType = tandem.v1.RemoveItemsRequest.class,
      responseType = tandem.v1.RemoveItemsResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<tandem.v1.RemoveItemsRequest,
      tandem.v1.RemoveItemsResponse> getRemoveItemsMethod() {
    io.grpc.MethodDescriptor<tandem.v1.RemoveItemsRequest, tandem.v1.RemoveItemsResponse> getRemoveItemsMethod;
    if ((getRemoveItemsMethod = SearchServiceGrpc.getRemoveItemsMethod) == null) {
      synchronized (SearchServiceGrpc.class) {
        if ((getRemoveItemsMethod = SearchServiceGrpc.getRemoveItemsMethod) == null) {
          SearchServiceGrpc.getRemoveItemsMethod = getRemoveItemsMethod =
              io.grpc.MethodDescriptor.<tandem.v1.RemoveItemsRequest, tandem.v1.RemoveItemsResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "RemoveItems"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  tandem.v1.RemoveItemsRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  tandem.v1.RemoveItemsResponse.getDefaultInstance()))
              .setSchemaDescriptor(new SearchServiceMethodDescriptorSupplier("RemoveItems"))
              .build();
        }
      }
    }
    return getRemoveItemsMethod;
  }

  private static volatile io.grpc.MethodDescriptor<tandem.v1.RemoveIndexRequest,
      tandem.v1.RemoveIndexResponse> getRemoveIndexMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "RemoveIndex",
      requestType = tandem.v1.RemoveIndexRequest.class,
      responseType = tandem.v1.RemoveIndexResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<tandem.v1.RemoveIndexRequest,
      tandem.v1.RemoveIndexResponse> getRemoveIndexMethod() {
    io.grpc.MethodDescriptor<tandem.v1.RemoveIndexRequest, tandem.v1.RemoveIndexResponse> getRemoveIndexMethod;
    if ((getRemoveIndexMethod = SearchServiceGrpc.getRemoveIndexMethod) == null) {
      synchronized (SearchServiceGrpc.class) {
        if ((getRemoveIndexMethod = SearchServiceGrpc.getRemoveIndexMethod) == null) {
          SearchServiceGrpc.getRemoveIndexMethod = getRemoveIndexMethod =
              io.grpc.MethodDescriptor.<tandem.v1.RemoveIndexRequest, tandem.v1.RemoveIndexResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "RemoveIndex"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  tandem.v1.RemoveIndexRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  tandem.v1.RemoveIndexResponse.getDefaultInstance()))
              .setSchemaDescriptor(new SearchServiceMethodDescriptorSupplier("RemoveIndex"))
              .build();
        }
      }
    }
    return getRemoveIndexMethod;
  }

  private static volatile io.grpc.MethodDescriptor<tandem.v1.DescribeIndexRequest,
      tandem.v1.DescribeIndexResponse> getDescribeIndexMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "DescribeIndex",
      requestType = tandem.v1.DescribeIndexRequest.class,
      responseType = tandem.v1.DescribeIndexResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<tandem.v1.DescribeIndexRequest,
      tandem.v1.DescribeIndexResponse> getDescribeIndexMethod() {
    io.grpc.MethodDescriptor<tandem.v1.DescribeIndexRequest, tandem.v1.DescribeIndexResponse> getDescribeIndexMethod;
    if ((getDescribeIndexMethod = SearchServiceGrpc.getDescribeIndexMethod) == null) {
      synchronized (SearchServiceGrpc.class) {
        if ((getDescribeIndexMethod = SearchServiceGrpc.getDescribeIndexMethod) == null) {
          SearchServiceGrpc.getDescribeIndexMethod = getDescribeIndexMethod =
              io.grpc.MethodDescriptor.<tandem.v1.DescribeIndexRequest, tandem.v1.DescribeIndexResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "DescribeIndex"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  tandem.v1.DescribeIndexRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  tandem.v1.DescribeIndexResponse.getDefaultInstance()))
              .setSchemaDescriptor(new SearchServiceMethodDescriptorSupplier("DescribeIndex"))
              .build();
        }
      }
    }
    return getDescribeIndexMethod;
  }

  private static volatile io.grpc.MethodDescriptor<tandem.v1.ListIndexesRequest,
      tandem.v1.ListIndexesResponse> getListIndexesMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "ListIndexes",
      requestType = tandem.v1.ListIndexesRequest.class,
      responseType = tandem.v1.ListIndexesResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<tandem.v1.ListIndexesRequest,
      tandem.v1.ListIndexesResponse> getListIndexesMethod() {
    io.grpc.MethodDescriptor<tandem.v1.ListIndexesRequest, tandem.v1.ListIndexesResponse> getListIndexesMethod;
    if ((getListIndexesMethod = SearchServiceGrpc.getListIndexesMethod) == null) {
      synchronized (SearchServiceGrpc.class) {
        if ((getListIndexesMethod = SearchServiceGrpc.getListIndexesMethod) == null) {
          SearchServiceGrpc.getListIndexesMethod = getListIndexesMethod =
              io.grpc.MethodDescriptor.<tandem.v1.ListIndexesRequest, tandem.v1.ListIndexesResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "ListIndexes"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  tandem.v1.ListIndexesRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  tandem.v1.ListIndexesResponse.getDefaultInstance()))
              .setSchemaDescriptor(new SearchServiceMethodDescriptorSupplier("ListIndexes"))
              .build();
        }
      }
    }
    return getListIndexesMethod;
  }

  /**
   * Creates a new async stub that supports all call types for the service
   */
  public static SearchServiceStub newStub(io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<SearchServiceStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<SearchServiceStub>() {
        @java.lang.Override
        public SearchServiceStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new SearchServiceStub(channel, callOptions);
        }
      };
    return SearchServiceStub.newStub(factory, channel);
  }

  /**
   * Creates a new blocking-style stub that supports unary and streaming output calls on the service
   */
  public static SearchServiceBlockingStub newBlockingStub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<SearchServiceBlockingStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<SearchServiceBlockingStub>() {
        @java.lang.Override
        public SearchServiceBlockingStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new SearchServiceBlockingStub(channel, callOptions);
        }
      };
    return SearchServiceBlockingStub.newStub(factory, channel);
  }

  /**
   * Creates a new ListenableFuture-style stub that supports unary calls on the service
   */
  public static SearchServiceFutureStub newFutureStub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<SearchServiceFutureStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<SearchServiceFutureStub>() {
        @java.lang.Override
        public SearchServiceFutureStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new SearchServiceFutureStub(channel, callOptions);
        }
      };
    return SearchServiceFutureStub.newStub(factory, channel);
  }

  /**
   * <pre>
   * The public API: search, ingest and removal, and the state of an index.
   * </pre>
   */
  public static abstract class SearchServiceImplBase implements io.grpc.BindableService {

    /**
     * <pre>
     * Encodes the query, retrieves the nearest items with the bi-encoder, reranks
     * the best of them with the cross-encoder and, if neighbours_enabled is set,
     * reorders the first by what is near them.
     * Respects the gRPC deadline of the call.
     * </pre>
     */
    public void searchItems(tandem.v1.SearchItemsRequest request,
        io.grpc.stub.StreamObserver<tandem.v1.SearchItemsResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getSearchItemsMethod(), responseObserver);
    }

    /**
     * <pre>
     * Answers twice: first in bi-encoder order, then in the final order. The
     * second answer equals the one of SearchItems.
     * </pre>
     */
    public void streamSearchItems(tandem.v1.StreamSearchItemsRequest request,
        io.grpc.stub.StreamObserver<tandem.v1.StreamSearchItemsResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getStreamSearchItemsMethod(), responseObserver);
    }

    /**
     * <pre>
     * Runs several searches in shared batches. A search that fails does not
     * affect the others.
     * </pre>
     */
    public void batchSearchItems(tandem.v1.BatchSearchItemsRequest request,
        io.grpc.stub.StreamObserver<tandem.v1.BatchSearchItemsResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getBatchSearchItemsMethod(), responseObserver);
    }

    /**
     * <pre>
     * Encodes and stores items batch by batch, and answers the batches in order.
     * An item that is answered without an error survives a crash. Applies
     * back-pressure: it reads no further batch while too many are in flight.
     * </pre>
     */
    public io.grpc.stub.StreamObserver<tandem.v1.IngestItemsRequest> ingestItems(
        io.grpc.stub.StreamObserver<tandem.v1.IngestItemsResponse> responseObserver) {
      return io.grpc.stub.ServerCalls.asyncUnimplementedStreamingCall(getIngestItemsMethod(), responseObserver);
    }

    /**
     * <pre>
     * Deletes items by id from the shards that own them.
     * </pre>
     */
    public void removeItems(tandem.v1.RemoveItemsRequest request,
        io.grpc.stub.StreamObserver<tandem.v1.RemoveItemsResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getRemoveItemsMethod(), responseObserver);
    }

    /**
     * <pre>
     * Deletes all items of an index, and then the index. One call deletes a part
     * of a large index; repeat it until an answer says is_complete.
     * </pre>
     */
    public void removeIndex(tandem.v1.RemoveIndexRequest request,
        io.grpc.stub.StreamObserver<tandem.v1.RemoveIndexResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getRemoveIndexMethod(), responseObserver);
    }

    /**
     * <pre>
     * Returns the state of an index on all shards: its items, what searches them,
     * and the recall that recent searches had.
     * </pre>
     */
    public void describeIndex(tandem.v1.DescribeIndexRequest request,
        io.grpc.stub.StreamObserver<tandem.v1.DescribeIndexResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getDescribeIndexMethod(), responseObserver);
    }

    /**
     * <pre>
     * Returns the indexes that the caller may search, page by page, in byte order
     * of their ids.
     * </pre>
     */
    public void listIndexes(tandem.v1.ListIndexesRequest request,
        io.grpc.stub.StreamObserver<tandem.v1.ListIndexesResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getListIndexesMethod(), responseObserver);
    }

    @java.lang.Override public final io.grpc.ServerServiceDefinition bindService() {
      return io.grpc.ServerServiceDefinition.builder(getServiceDescriptor())
          .addMethod(
            getSearchItemsMethod(),
            io.grpc.stub.ServerCalls.asyncUnaryCall(
              new MethodHandlers<
                tandem.v1.SearchItemsRequest,
                tandem.v1.SearchItemsResponse>(
                  this, METHODID_SEARCH_ITEMS)))
          .addMethod(
            getStreamSearchItemsMethod(),
            io.grpc.stub.ServerCalls.asyncServerStreamingCall(
              new MethodHandlers<
                tandem.v1.StreamSearchItemsRequest,
                tandem.v1.StreamSearchItemsResponse>(
                  this, METHODID_STREAM_SEARCH_ITEMS)))
          .addMethod(
            getBatchSearchItemsMethod(),
            io.grpc.stub.ServerCalls.asyncUnaryCall(
              new MethodHandlers<
                tandem.v1.BatchSearchItemsRequest,
                tandem.v1.BatchSearchItemsResponse>(
                  this, METHODID_BATCH_SEARCH_ITEMS)))
          .addMethod(
            getIngestItemsMethod(),
            io.grpc.stub.ServerCalls.asyncBidiStreamingCall(
              new MethodHandlers<
                tandem.v1.IngestItemsRequest,
                tandem.v1.IngestItemsResponse>(
                  this, METHODID_INGEST_ITEMS)))
          .addMethod(
            getRemoveItemsMethod(),
            io.grpc.stub.ServerCalls.asyncUnaryCall(
              new MethodHandlers<
                tandem.v1.RemoveItemsRequest,
                tandem.v1.RemoveItemsResponse>(
                  this, METHODID_REMOVE_ITEMS)))
          .addMethod(
            getRemoveIndexMethod(),
            io.grpc.stub.ServerCalls.asyncUnaryCall(
              new MethodHandlers<
                tandem.v1.RemoveIndexRequest,
                tandem.v1.RemoveIndexResponse>(
                  this, METHODID_REMOVE_INDEX)))
          .addMethod(
            getDescribeIndexMethod(),
            io.grpc.stub.ServerCalls.asyncUnaryCall(
              new MethodHandlers<
                tandem.v1.DescribeIndexRequest,
                tandem.v1.DescribeIndexResponse>(
                  this, METHODID_DESCRIBE_INDEX)))
          .addMethod(
            getListIndexesMethod(),
            io.grpc.stub.ServerCalls.asyncUnaryCall(
              new MethodHandlers<
                tandem.v1.ListIndexesRequest,
                tandem.v1.ListIndexesResponse>(
                  this, METHODID_LIST_INDEXES)))
          .build();
    }
  }

  /**
   * <pre>
   * The public API: search, ingest and removal, and the state of an index.
   * </pre>
   */
  public static final class SearchServiceStub extends io.grpc.stub.AbstractAsyncStub<SearchServiceStub> {
    private SearchServiceStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected SearchServiceStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new SearchServiceStub(channel, callOptions);
    }

    /**
     * <pre>
     * Encodes the query, retrieves the nearest items with the bi-encoder, reranks
     * the best of them with the cross-encoder and, if neighbours_enabled is set,
     * reorders the first by what is near them.
     * Respects the gRPC deadline of the call.
     * </pre>
     */
    public void searchItems(tandem.v1.SearchItemsRequest request,
        io.grpc.stub.StreamObserver<tandem.v1.SearchItemsResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getSearchItemsMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Answers twice: first in bi-encoder order, then in the final order. The
     * second answer equals the one of SearchItems.
     * </pre>
     */
    public void streamSearchItems(tandem.v1.StreamSearchItemsRequest request,
        io.grpc.stub.StreamObserver<tandem.v1.StreamSearchItemsResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncServerStreamingCall(
          getChannel().newCall(getStreamSearchItemsMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Runs several searches in shared batches. A search that fails does not
     * affect the others.
     * </pre>
     */
    public void batchSearchItems(tandem.v1.BatchSearchItemsRequest request,
        io.grpc.stub.StreamObserver<tandem.v1.BatchSearchItemsResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getBatchSearchItemsMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Encodes and stores items batch by batch, and answers the batches in order.
     * An item that is answered without an error survives a crash. Applies
     * back-pressure: it reads no further batch while too many are in flight.
     * </pre>
     */
    public io.grpc.stub.StreamObserver<tandem.v1.IngestItemsRequest> ingestItems(
        io.grpc.stub.StreamObserver<tandem.v1.IngestItemsResponse> responseObserver) {
      return io.grpc.stub.ClientCalls.asyncBidiStreamingCall(
          getChannel().newCall(getIngestItemsMethod(), getCallOptions()), responseObserver);
    }

    /**
     * <pre>
     * Deletes items by id from the shards that own them.
     * </pre>
     */
    public void removeItems(tandem.v1.RemoveItemsRequest request,
        io.grpc.stub.StreamObserver<tandem.v1.RemoveItemsResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getRemoveItemsMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Deletes all items of an index, and then the index. One call deletes a part
     * of a large index; repeat it until an answer says is_complete.
     * </pre>
     */
    public void removeIndex(tandem.v1.RemoveIndexRequest request,
        io.grpc.stub.StreamObserver<tandem.v1.RemoveIndexResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getRemoveIndexMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Returns the state of an index on all shards: its items, what searches them,
     * and the recall that recent searches had.
     * </pre>
     */
    public void describeIndex(tandem.v1.DescribeIndexRequest request,
        io.grpc.stub.StreamObserver<tandem.v1.DescribeIndexResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getDescribeIndexMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Returns the indexes that the caller may search, page by page, in byte order
     * of their ids.
     * </pre>
     */
    public void listIndexes(tandem.v1.ListIndexesRequest request,
        io.grpc.stub.StreamObserver<tandem.v1.ListIndexesResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getListIndexesMethod(), getCallOptions()), request, responseObserver);
    }
  }

  /**
   * <pre>
   * The public API: search, ingest and removal, and the state of an index.
   * </pre>
   */
  public static final class SearchServiceBlockingStub extends io.grpc.stub.AbstractBlockingStub<SearchServiceBlockingStub> {
    private SearchServiceBlockingStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected SearchServiceBlockingStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new SearchServiceBlockingStub(channel, callOptions);
    }

    /**
     * <pre>
     * Encodes the query, retrieves the nearest items with the bi-encoder, reranks
     * the best of them with the cross-encoder and, if neighbours_enabled is set,
     * reorders the first by what is near them.
     * Respects the gRPC deadline of the call.
     * </pre>
     */
    public tandem.v1.SearchItemsResponse searchItems(tandem.v1.SearchItemsRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getSearchItemsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Answers twice: first in bi-encoder order, then in the final order. The
     * second answer equals the one of SearchItems.
     * </pre>
     */
    public java.util.Iterator<tandem.v1.StreamSearchItemsResponse> streamSearchItems(
        tandem.v1.StreamSearchItemsRequest request) {
      return io.grpc.stub.ClientCalls.blockingServerStreamingCall(
          getChannel(), getStreamSearchItemsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Runs several searches in shared batches. A search that fails does not
     * affect the others.
     * </pre>
     */
    public tandem.v1.BatchSearchItemsResponse batchSearchItems(tandem.v1.BatchSearchItemsRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getBatchSearchItemsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Deletes items by id from the shards that own them.
     * </pre>
     */
    public tandem.v1.RemoveItemsResponse removeItems(tandem.v1.RemoveItemsRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getRemoveItemsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Deletes all items of an index, and then the index. One call deletes a part
     * of a large index; repeat it until an answer says is_complete.
     * </pre>
     */
    public tandem.v1.RemoveIndexResponse removeIndex(tandem.v1.RemoveIndexRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getRemoveIndexMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Returns the state of an index on all shards: its items, what searches them,
     * and the recall that recent searches had.
     * </pre>
     */
    public tandem.v1.DescribeIndexResponse describeIndex(tandem.v1.DescribeIndexRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getDescribeIndexMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Returns the indexes that the caller may search, page by page, in byte order
     * of their ids.
     * </pre>
     */
    public tandem.v1.ListIndexesResponse listIndexes(tandem.v1.ListIndexesRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getListIndexesMethod(), getCallOptions(), request);
    }
  }

  /**
   * <pre>
   * The public API: search, ingest and removal, and the state of an index.
   * </pre>
   */
  public static final class SearchServiceFutureStub extends io.grpc.stub.AbstractFutureStub<SearchServiceFutureStub> {
    private SearchServiceFutureStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected SearchServiceFutureStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new SearchServiceFutureStub(channel, callOptions);
    }

    /**
     * <pre>
     * Encodes the query, retrieves the nearest items with the bi-encoder, reranks
     * the best of them with the cross-encoder and, if neighbours_enabled is set,
     * reorders the first by what is near them.
     * Respects the gRPC deadline of the call.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<tandem.v1.SearchItemsResponse> searchItems(
        tandem.v1.SearchItemsRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getSearchItemsMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Runs several searches in shared batches. A search that fails does not
     * affect the others.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<tandem.v1.BatchSearchItemsResponse> batchSearchItems(
        tandem.v1.BatchSearchItemsRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getBatchSearchItemsMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Deletes items by id from the shards that own them.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<tandem.v1.RemoveItemsResponse> removeItems(
        tandem.v1.RemoveItemsRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getRemoveItemsMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Deletes all items of an index, and then the index. One call deletes a part
     * of a large index; repeat it until an answer says is_complete.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<tandem.v1.RemoveIndexResponse> removeIndex(
        tandem.v1.RemoveIndexRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getRemoveIndexMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Returns the state of an index on all shards: its items, what searches them,
     * and the recall that recent searches had.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<tandem.v1.DescribeIndexResponse> describeIndex(
        tandem.v1.DescribeIndexRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getDescribeIndexMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Returns the indexes that the caller may search, page by page, in byte order
     * of their ids.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<tandem.v1.ListIndexesResponse> listIndexes(
        tandem.v1.ListIndexesRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getListIndexesMethod(), getCallOptions()), request);
    }
  }

  private static final int METHODID_SEARCH_ITEMS = 0;
  private static final int METHODID_STREAM_SEARCH_ITEMS = 1;
  private static final int METHODID_BATCH_SEARCH_ITEMS = 2;
  private static final int METHODID_REMOVE_ITEMS = 3;
  private static final int METHODID_REMOVE_INDEX = 4;
  private static final int METHODID_DESCRIBE_INDEX = 5;
  private static final int METHODID_LIST_INDEXES = 6;
  private static final int METHODID_INGEST_ITEMS = 7;

  private static final class MethodHandlers<Req, Resp> implements
      io.grpc.stub.ServerCalls.UnaryMethod<Req, Resp>,
      io.grpc.stub.ServerCalls.ServerStreamingMethod<Req, Resp>,
      io.grpc.stub.ServerCalls.ClientStreamingMethod<Req, Resp>,
      io.grpc.stub.ServerCalls.BidiStreamingMethod<Req, Resp> {
    private final SearchServiceImplBase serviceImpl;
    private final int methodId;

    MethodHandlers(SearchServiceImplBase serviceImpl, int methodId) {
      this.serviceImpl = serviceImpl;
      this.methodId = methodId;
    }

    @java.lang.Override
    @java.lang.SuppressWarnings("unchecked")
    public void invoke(Req request, io.grpc.stub.StreamObserver<Resp> responseObserver) {
      switch (methodId) {
        case METHODID_SEARCH_ITEMS:
          serviceImpl.searchItems((tandem.v1.SearchItemsRequest) request,
              (io.grpc.stub.StreamObserver<tandem.v1.SearchItemsResponse>) responseObserver);
          break;
        case METHODID_STREAM_SEARCH_ITEMS:
          serviceImpl.streamSearchItems((tandem.v1.StreamSearchItemsRequest) request,
              (io.grpc.stub.StreamObserver<tandem.v1.StreamSearchItemsResponse>) responseObserver);
          break;
        case METHODID_BATCH_SEARCH_ITEMS:
          serviceImpl.batchSearchItems((tandem.v1.BatchSearchItemsRequest) request,
              (io.grpc.stub.StreamObserver<tandem.v1.BatchSearchItemsResponse>) responseObserver);
          break;
        case METHODID_REMOVE_ITEMS:
          serviceImpl.removeItems((tandem.v1.RemoveItemsRequest) request,
              (io.grpc.stub.StreamObserver<tandem.v1.RemoveItemsResponse>) responseObserver);
          break;
        case METHODID_REMOVE_INDEX:
          serviceImpl.removeIndex((tandem.v1.RemoveIndexRequest) request,
              (io.grpc.stub.StreamObserver<tandem.v1.RemoveIndexResponse>) responseObserver);
          break;
        case METHODID_DESCRIBE_INDEX:
          serviceImpl.describeIndex((tandem.v1.DescribeIndexRequest) request,
              (io.grpc.stub.StreamObserver<tandem.v1.DescribeIndexResponse>) responseObserver);
          break;
        case METHODID_LIST_INDEXES:
          serviceImpl.listIndexes((tandem.v1.ListIndexesRequest) request,
              (io.grpc.stub.StreamObserver<tandem.v1.ListIndexesResponse>) responseObserver);
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
        case METHODID_INGEST_ITEMS:
          return (io.grpc.stub.StreamObserver<Req>) serviceImpl.ingestItems(
              (io.grpc.stub.StreamObserver<tandem.v1.IngestItemsResponse>) responseObserver);
        default:
          throw new AssertionError();
      }
    }
  }

  private static abstract class SearchServiceBaseDescriptorSupplier
      implements io.grpc.protobuf.ProtoFileDescriptorSupplier, io.grpc.protobuf.ProtoServiceDescriptorSupplier {
    SearchServiceBaseDescriptorSupplier() {}

    @java.lang.Override
    public com.google.protobuf.Descriptors.FileDescriptor getFileDescriptor() {
      return tandem.v1.SearchServiceProto.getDescriptor();
    }

    @java.lang.Override
    public com.google.protobuf.Descriptors.ServiceDescriptor getServiceDescriptor() {
      return getFileDescriptor().findServiceByName("SearchService");
    }
  }

  private static final class SearchServiceFileDescriptorSupplier
      extends SearchServiceBaseDescriptorSupplier {
    SearchServiceFileDescriptorSupplier() {}
  }

  private static final class SearchServiceMethodDescriptorSupplier
      extends SearchServiceBaseDescriptorSupplier
      implements io.grpc.protobuf.ProtoMethodDescriptorSupplier {
    private final String methodName;

    SearchServiceMethodDescriptorSupplier(String methodName) {
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
      synchronized (SearchServiceGrpc.class) {
        result = serviceDescriptor;
        if (result == null) {
          serviceDescriptor = result = io.grpc.ServiceDescriptor.newBuilder(SERVICE_NAME)
              .setSchemaDescriptor(new SearchServiceFileDescriptorSupplier())
              .addMethod(getSearchItemsMethod())
              .addMethod(getStreamSearchItemsMethod())
              .addMethod(getBatchSearchItemsMethod())
              .addMethod(getIngestItemsMethod())
              .addMethod(getRemoveItemsMethod())
              .addMethod(getRemoveIndexMethod())
              .addMethod(getDescribeIndexMethod())
              .addMethod(getListIndexesMethod())
              .build();
        }
      }
    }
    return result;
  }
}
