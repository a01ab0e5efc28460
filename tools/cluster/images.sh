#!/usr/bin/env bash
# `images.sh build` builds the three images from this tree and prints their sizes; `images.sh push` copies them to $REGISTRY.
# `images.sh wheels FOLDER` builds the rooms' wheels only. Undo: `docker rmi` of what `docker images 'qmljob/*'` lists.
TARGET=images
. "$(dirname "$0")/common.sh"
export DOCKER_BUILDKIT=1
WHEELS=.cache/wheels

wheels() { # the same sources give the same bytes
  local folder room output; folder=$(mkdir -p "$1" && cd "$1" && pwd)
  rm -f "$folder"/*.whl
  for room in api operator training inference client; do
    output=$(cd "$room" && ../.venv/bin/python -m hatchling build --target wheel --directory "$folder" 2>&1) || fail "room $room gives no wheel: $output"
  done
}

build() {
  local machine; machine=$(docker version --format '{{.Server.Arch}}')
  [ "$machine" = amd64 ] || fail "needs a Docker engine on x86_64, this one is $machine: TensorFlow Quantum 0.7.6 has no other wheels"
  wheels $WHEELS
  docker image inspect "$PYTHON_BASE_IMAGE" > /dev/null 2>&1 || docker pull --quiet "$PYTHON_BASE_IMAGE" > /dev/null
  local program
  for program in "${PROGRAMS[@]}"; do
    say "building qmljob/$program:$VERSION"
    docker build --build-arg PYTHON_BASE_IMAGE="$PYTHON_BASE_IMAGE" --build-arg TRAINING_IMAGE="qmljob/training:$VERSION" --build-arg VERSION="$VERSION" \
      --file "images/$program/Dockerfile" --tag "qmljob/$program:$VERSION" . || fail "images/$program/Dockerfile does not build (the message is above)"
  done
  local base; base=$(size "$PYTHON_BASE_IMAGE")
  for program in "${PROGRAMS[@]}"; do
    printf '%-26s %5d MB, %5d MB over its base image\n' "qmljob/$program:$VERSION" "$(size "qmljob/$program:$VERSION")" $(($(size "qmljob/$program:$VERSION") - base))
  done
}

size() { echo $(($(docker image inspect --format '{{.Size}}' "$1") / 1000000)); }

push() {
  local program
  for program in "${PROGRAMS[@]}"; do
    docker image inspect "qmljob/$program:$VERSION" > /dev/null 2>&1 || fail "there is no image qmljob/$program:$VERSION; build it with \`make images\`"
    docker tag "qmljob/$program:$VERSION" "$REGISTRY/$program:$VERSION"
    docker push --quiet "$REGISTRY/$program:$VERSION" > /dev/null || fail "$REGISTRY took no image (docker's message is above); is the registry there (make kind-up), and are you logged in (docker login)?"
    say "pushed $(pushed "$program")"
  done
  [ "$REGISTRY" != "$LOCAL_REGISTRY" ] || forget_old
}

# A node that has an image of this name does not look for a newer one, and here a version's images change all the time.
forget_old() {
  local node program name digest
  for node in $(command -v kind > /dev/null && kind get nodes --name "$CLUSTER" 2> /dev/null); do
    for program in "${PROGRAMS[@]}"; do
      name=docker.io/qmljob/$program:$VERSION
      digest=$(pushed "$program"); digest=${digest#*@}
      docker exec "$node" bash -c 'found=$(crictl inspecti "$1" 2> /dev/null) || exit 0; [[ $found == *"$2"* ]] || { crictl rmi "$1" > /dev/null 2>&1 || true; ! crictl inspecti "$1" > /dev/null 2>&1; }' - "$name" "$digest" ||
        say "node $node keeps an older $name (is the node running?)"
    done
  done
}

case ${1:-} in
  build) TARGET=images; need docker && build ;;
  push) TARGET=push; need docker && push ;;
  wheels) TARGET=wheels; wheels "${2:?images.sh wheels needs a folder}" ;;
  *) echo "usage: $0 build|push|wheels FOLDER" >&2; exit 64 ;;
esac
