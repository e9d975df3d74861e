"""Serves tandem.search over gRPC: the public service.

__main__, serving  wires the service and runs it; assembly puts the parts together
settings           its environment variables
servicer           SearchService: converts messages, and calls tandem.search
content_servicer   ContentService: converts messages, and calls tandem.search.contents
model_servicer     ModelService: describes the models of the downstream services
call_deadline      reads the deadlines of calls
"""
