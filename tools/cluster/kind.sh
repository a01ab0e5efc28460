#!/usr/bin/env bash
# `kind.sh up` makes a kind cluster for development, with a registry beside it and a bucket emulator in it; what is there
# already is kept. `kind.sh down` removes all of it.
#
# What it makes: the cluster `qmljob` (manifests/kind/cluster.yaml) with the kubectl context `kind-qmljob`; the container
# `qmljob-registry` on 127.0.0.1:5001; in the cluster the namespace `qmljob-store` and the ConfigMap `qmljob-environment`.
TARGET=kind-$1
. "$(dirname "$0")/common.sh"

up() {
  local started=$SECONDS
  make_registry
  make_cluster
  connect_registry
  make_store
  say "ready in $((SECONDS - started)) s: kubectl uses context $CONTEXT, images go to $LOCAL_HOST, gs://qmljob is an emulator. Undo: make kind-down"
}

down() {
  if kind get clusters 2> /dev/null | grep -qx "$CLUSTER"; then
    say "removing the cluster $CLUSTER and its context"
    kind delete cluster --quiet --name "$CLUSTER"
  fi
  docker rm --force --volumes "$REGISTRY_CONTAINER" > /dev/null 2>&1 || true
  # What was pushed, and then pushed anew, has a digest and no tag.
  docker images --digests --format '{{.Repository}}{{if eq .Tag "<none>"}}@{{.Digest}}{{else}}:{{.Tag}}{{end}}' "$LOCAL_REGISTRY/*" |
    sort --unique | xargs --no-run-if-empty docker rmi > /dev/null
  # kind's network serves all of a machine's kind clusters, and goes with the last.
  [ -n "$(kind get clusters 2> /dev/null)" ] || docker network rm kind > /dev/null 2>&1 || true
  say "nothing is left of cluster, registry and store. Images that were built stay in Docker: docker images 'qmljob/*'"
}

make_registry() {
  [ -z "$(docker ps --quiet --filter "name=^$REGISTRY_CONTAINER\$")" ] || return 0
  docker start "$REGISTRY_CONTAINER" > /dev/null 2>&1 && return 0
  say "starting the registry $REGISTRY_CONTAINER on $LOCAL_HOST"
  docker run --detach --restart=always --name "$REGISTRY_CONTAINER" --publish "127.0.0.1:${LOCAL_HOST#*:}:5000" "$KIND_REGISTRY_IMAGE" > /dev/null ||
    fail "the registry did not start (docker's message is above); is port ${LOCAL_HOST#*:} taken by another program?"
}

make_cluster() {
  if kind get clusters 2> /dev/null | grep -qx "$CLUSTER"; then
    # After a restart of the machine the nodes may stand still.
    kind get nodes --name "$CLUSTER" | xargs docker start > /dev/null
    kind export kubeconfig --quiet --name "$CLUSTER"
  else
    say "making the cluster $CLUSTER: a control plane and two workers, $KIND_NODE_IMAGE"
    kind create cluster --quiet --config manifests/kind/cluster.yaml --image "$KIND_NODE_IMAGE" ||
      fail "kind made no cluster (its message is above; kind export logs shows more); \`make kind-down\` removes what is left of it"
  fi
  k wait --for=condition=Ready node --all --timeout=180s > /dev/null ||
    fail "not all nodes are ready: kubectl --context $CONTEXT describe nodes"
}

# The way that kind documents for a local registry, and besides: a name without a host (`qmljob/training`) is looked for in
# that registry before Docker Hub, so that manifests need no edit for kind.
connect_registry() {
  [ -n "$(docker inspect --format '{{with .NetworkSettings.Networks.kind}}{{.NetworkID}}{{end}}' "$REGISTRY_CONTAINER")" ] ||
    docker network connect kind "$REGISTRY_CONTAINER"
  local node
  for node in $(kind get nodes --name "$CLUSTER"); do
    docker exec --interactive "$node" bash -euc '
      mkdir -p "/etc/containerd/certs.d/$1" /etc/containerd/certs.d/docker.io
      printf "[host.\"http://%s:5000\"]\n" "$2" > "/etc/containerd/certs.d/$1/hosts.toml"
      printf "server = \"https://registry-1.docker.io\"\n[host.\"http://%s:5000\"]\n  capabilities = [\"pull\", \"resolve\"]\n" "$2" > /etc/containerd/certs.d/docker.io/hosts.toml
      ' - "$LOCAL_HOST" "$REGISTRY_CONTAINER"
  done
  k apply --server-side --filename - > /dev/null << YAML
apiVersion: v1
kind: ConfigMap
metadata: {name: local-registry-hosting, namespace: kube-public}
data:
  localRegistryHosting.v1: |
    host: "$LOCAL_HOST"
    help: "https://kind.sigs.k8s.io/docs/user/local-registry/"
YAML
}

# The emulator's image comes from Docker where it is there (it may exist nowhere else), and else from its registry.
make_store() {
  docker image inspect "$GCS_EMULATOR_IMAGE" > /dev/null 2>&1 || docker pull --quiet "$GCS_EMULATOR_IMAGE" > /dev/null
  docker tag "$GCS_EMULATOR_IMAGE" "$LOCAL_REGISTRY/gcs-emulator:$VERSION"
  docker push --quiet "$LOCAL_REGISTRY/gcs-emulator:$VERSION" > /dev/null
  local image; image=$(REGISTRY=$LOCAL_REGISTRY pushed gcs-emulator)
  sed "s|GCS_EMULATOR_IMAGE\$|$image|" manifests/kind/store.yaml | k apply --server-side --filename - > /dev/null
  k rollout status deployment/gcs --namespace qmljob-store --timeout=120s > /dev/null ||
    fail "the bucket emulator did not start: kubectl --context $CONTEXT describe pods --namespace qmljob-store"
}

case ${1:-} in
  up) need docker kind kubectl && up ;;
  down) need docker kind && down ;;
  *) echo "usage: $0 up|down" >&2; exit 64 ;;
esac
