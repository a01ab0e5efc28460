# Read by the scripts of this folder: the settings that they share, and how they speak.
#
#   CONTEXT    the cluster, as kubectl knows it (default kind-qmljob: never by accident another one)
#   OVERLAY    of manifests/overlays (default kind)
#   REGISTRY   where images are pushed to: <host>/<path>; an image's name follows (default: the registry beside the cluster)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

CLUSTER=qmljob
REGISTRY_CONTAINER=qmljob-registry
LOCAL_HOST=localhost:5001
LOCAL_REGISTRY=$LOCAL_HOST/qmljob
NAMESPACE=qmljob-system
PROGRAMS=(operator training inference)
VERSION=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
CONTEXT=${CONTEXT:-kind-$CLUSTER}
OVERLAY=${OVERLAY:-kind}
REGISTRY=${REGISTRY:-$LOCAL_REGISTRY}

while IFS='=' read -r name pin; do
  case $name in '' | '#'*) ;; *) [ -n "${!name:-}" ] || printf -v "$name" '%s' "$pin" ;; esac
done < images/pins.env

say() { printf '%s: %s\n' "$TARGET" "$*" >&2; }
fail() { say "$*"; exit 1; }

# One line for everything that is missing, before anything is changed: need docker kind kubectl
need() {
  local tool missing=()
  for tool; do
    command -v "$tool" > /dev/null || missing+=("$tool ($(where_from "$tool"))")
  done
  [ ${#missing[@]} = 0 ] || fail "needs $(printf '%s; ' "${missing[@]}" | sed 's/; $//'): not found on the PATH"
  case " $* " in *' docker '*) need_docker ;; esac
}

where_from() {
  case $1 in
    docker) echo 'https://docs.docker.com/engine/install' ;;
    kind) echo '0.27 or newer: https://kind.sigs.k8s.io/docs/user/quick-start/#installation' ;;
    kubectl) echo 'https://kubernetes.io/docs/tasks/tools' ;;
  esac
}

need_docker() {
  local answer; answer=$(docker version --format '{{.Server.Version}}' 2>&1) ||
    fail "docker is installed, but its engine does not answer (${answer##*$'\n'}); start it, or point DOCKER_HOST at one"
}

# The image that was last pushed, by digest; nothing where none was pushed from here: pushed operator
pushed() {
  docker image inspect --format '{{range .RepoDigests}}{{println .}}{{end}}' "$REGISTRY/$1:$VERSION" 2> /dev/null | grep "^$REGISTRY/$1@" | head -1 || true
}

k() { kubectl --context "$CONTEXT" "$@"; }

need_cluster() {
  need kubectl
  local answer; answer=$(k version --request-timeout=10s 2>&1 > /dev/null) || {
    if [ "$CONTEXT" = "kind-$CLUSTER" ]; then
      fail "there is no kind cluster '$CLUSTER'; make one with \`make kind-up\`, or name another cluster: CONTEXT=<context of kubectl> OVERLAY=<overlay>"
    fi
    fail "the cluster of context '$CONTEXT' does not answer (${answer##*$'\n'}); \`kubectl config get-contexts\` lists what there is"
  }
}
