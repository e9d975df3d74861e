"""One thread a test process: test runs share cores, and torch's threads wait for one another."""

import torch

torch.set_num_threads(1)
