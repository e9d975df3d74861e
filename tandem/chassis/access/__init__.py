"""Decides who may call what, and how often.

- `guard`: the callers that a service admits
- `tokens`: the token file: digests, scopes, indexes and quotas
- `token_bucket`: a rate limit with bursts
- `callers`, `headers`: the caller and the headers of the current call
- `call_log`: one line a call, and few for callers who are not known
- `exposure`: warns at start of what is open
"""
