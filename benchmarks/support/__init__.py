"""Loads, models and servers that several benchmarks share.

- loads/: searches at a rate or one at a time, and what processes hold meanwhile
- tables/: tables and pictures of what was measured
- large_model.py, small_model.py, zoo_pictures.py, clustered_vectors.py: models and data
- in_process.py, device_search.py, raw_faiss.py, thin_service.py, triton_side.py: what the served
  search is held against; peer_environments.py, infinity_side.py: other programs
- served_index.py, served_times.py: a served index, and where a served search's time goes
- faults.py: the faults that runs/mutations.py plants
"""
