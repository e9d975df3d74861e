"""As in index_svc: one FAISS thread. Several wait for one another where cores are shared."""

import faiss

faiss.omp_set_num_threads(1)
