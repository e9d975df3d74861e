"""Defines the types and rules of the public contract.

content, modality             texts and images; regions: a detector's regions
picture_base64                pictures in JSON
filtering/                    attributes, and filters over them
search/                       what is asked of a search, and what it answers
fusion                        how two lists or two scores become one
index_description             an index on a shard; search_path: how a shard searched
model_description             a model and its limits; inference_cost: what it cost
methods                       the methods of the contract, and who may call them
identifiers, limits, address  what is allowed; generation_ids: how generations are named
deadline                      time
record_wire, field_wire       records to messages and back, by a table of their fields

The SDK imports this package, so it needs only grpcio and protobuf.
"""
