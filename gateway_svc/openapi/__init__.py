"""Describes the HTTP API in OpenAPI 3.1, from the endpoints themselves.

schemas    JSON Schemas of the contract's messages
document   the document of all routes
"""
