# Clusters. CONTEXT, OVERLAY and REGISTRY say which (tools/cluster/common.sh); by default the one of `make kind-up`.
export CONTEXT OVERLAY REGISTRY ALL

.PHONY: kind-up
kind-up: ## make a kind cluster with a registry and a bucket emulator (undo: kind-down)
	@tools/cluster/kind.sh up

.PHONY: kind-down
kind-down: ## remove the kind cluster, its registry and all that is in them
	@tools/cluster/kind.sh down

.PHONY: images
images: setup ## build the images of operator, training and inference; prints their sizes
	@tools/cluster/images.sh build

.PHONY: push
push: ## push the images to REGISTRY (default: the kind cluster's)
	@tools/cluster/images.sh push

.PHONY: deploy
deploy: ## put the operator that was pushed on the cluster (undo: undeploy)
	@tools/cluster/deploy.sh deploy

.PHONY: undeploy
undeploy: ## remove the operator and keep jobs and CRD; ALL=1: delete these too
	@tools/cluster/deploy.sh undeploy

.PHONY: training
training: setup ## build, push, deploy where missing, train the sample and follow it (undo: delete-training)
	@tools/cluster/samples.sh check && $(MAKE) images && $(MAKE) push && tools/cluster/samples.sh training

.PHONY: inference
inference: setup ## evaluate the sample's weights in a Job of its own; prints the mean squared error
	@tools/cluster/samples.sh inference

.PHONY: delete-training delete-inference
delete-training: ## delete the sample job; its bucket stays
	@tools/cluster/samples.sh delete-training
delete-inference: ## delete the Job of `make inference`
	@tools/cluster/samples.sh delete-inference

.PHONY: e2e
e2e: setup ## run the tests that need a cluster, on kind, which stays there (undo: kind-down)
	@for target in kind-up images push deploy; do $(MAKE) $$target; done
	@$(PYTEST) -m "not slow" tests/e2e $(ARGS)

.PHONY: e2e-slow
e2e-slow: setup ## on kind too: an hour in which workers, nodes, network, bucket, API server and operator fail at random
	@for target in kind-up images push deploy; do $(MAKE) $$target; done
	@$(PYTEST) -m slow tests/e2e $(ARGS)

.PHONY: release
release: setup ## write dist/: install.yaml with the images that were pushed, wheels, notes, checksums
	@tools/cluster/images.sh wheels dist && $(BIN)/python tools/release.py $(if $(REGISTRY),--registry $(REGISTRY))
