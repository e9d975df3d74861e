// The public API of Tandem (protos/tandem/v1) and what its messages are made of.
export * from "./gen/tandem/v1/attribute_pb.js";
export * from "./gen/tandem/v1/content_pb.js";
export * from "./gen/tandem/v1/content_service_pb.js";
export * from "./gen/tandem/v1/cost_pb.js";
export * from "./gen/tandem/v1/error_reason_pb.js";
export * from "./gen/tandem/v1/index_service_pb.js";
export * from "./gen/tandem/v1/model_service_pb.js";
export * from "./gen/tandem/v1/search_service_pb.js";
