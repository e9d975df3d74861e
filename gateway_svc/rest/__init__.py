"""Plain HTTP: paths under /v1, JSON in the protos' names, errors as problem details.

content_json    texts and pictures, as people write them in JSON
url_parameters  parameters of URLs that several operations have
search          POST /v1/search, at once or as server-sent events
items           /v1/items: put, get, list, delete
indexes         GET /v1/indexes and /v1/indexes/INDEX
models          GET /v1/models, as OpenAI's
rerank          POST /v1/rerank, as Jina's and Cohere's
embeddings      POST /v1/embeddings, as OpenAI's
"""
