#!/usr/bin/env bash
# `samples.sh training` runs manifests/samples/qcnn.yaml on the cluster of $CONTEXT and follows it to its end, with the
# operator put there first where it is missing; `samples.sh inference` runs manifests/samples/inference.yaml, and prints the
# mean squared error. `samples.sh delete-training|delete-inference` deletes what they made; what is in the bucket stays.
TARGET=$1
. "$(dirname "$0")/common.sh"
JOBS_NAMESPACE=default

run() { # train|infer file
  local registry=()
  [ "$REGISTRY" = "$LOCAL_REGISTRY" ] || registry=(--registry "$REGISTRY")
  .venv/bin/python tools/cluster/jobs.py "$1" "manifests/samples/$2" --context "$CONTEXT" --namespace "$JOBS_NAMESPACE" "${registry[@]}"
}

training() {
  k get deployment/qmljob-operator --namespace "$NAMESPACE" > /dev/null 2>&1 || tools/cluster/deploy.sh deploy
  say "training manifests/samples/qcnn.yaml. A job that is there already is followed; to train anew: make delete-training first. Undo: make delete-training"
  run train qcnn.yaml
  say "the weights are in gs://qmljob/qcnn_weights.h5; \`make inference\` evaluates them again"
}

inference() {
  say "running manifests/samples/inference.yaml. Undo: make delete-inference"
  run infer inference.yaml
}

delete() { # kind name
  k delete "$1" "$2" --namespace "$JOBS_NAMESPACE" --ignore-not-found > /dev/null
  say "$1 $2 and its pods are gone; what it wrote to its bucket stays. Undo: make ${TARGET#delete-}"
}

[ "$TARGET" != check ] || TARGET=training
need_cluster
case $1 in
  check) ;;
  training) training ;;
  inference) inference ;;
  delete-training) delete qmljob qcnn ;;
  delete-inference) delete job qcnn-inference-manual ;;
  *) echo "usage: $0 training|inference|delete-training|delete-inference" >&2; exit 64 ;;
esac
