"""Plain HTTP: paths under /v1, JSON in the protos' names, errors as problem details.

json_endpoint  what the endpoints here share
content_json   texts and pictures, as people write them in JSON
search         POST /v1/search, at once or as server-sent events
"""
