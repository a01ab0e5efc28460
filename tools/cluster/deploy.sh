#!/usr/bin/env bash
# `deploy.sh deploy` puts CRD, permissions and operator on the cluster of $CONTEXT, and waits until the operator runs; again
# with nothing new it changes nothing. `deploy.sh undeploy` removes the operator and its permissions; jobs, their pods and
# the CRD stay, unless ALL=1: to delete the CRD is to delete every QMLJob on the cluster.
TARGET=${1:-deploy}
. "$(dirname "$0")/common.sh"

manifests() { # with the image that was pushed, by its digest: so a new push is a new rollout, and the same one is none
  kubectl kustomize "manifests/overlays/$OVERLAY" | sed -E "s#(image: ).*/operator(:.*)?\$#\1$(operator_image)#"
}

operator_image() {
  local image; image=$(pushed operator)
  echo "${image:-$REGISTRY/operator:$VERSION}"
}

deploy() {
  [ -d "manifests/overlays/$OVERLAY" ] || fail "there is no overlay '$OVERLAY'; there are: $(ls manifests/overlays | paste -sd ' ')"
  if [ "$REGISTRY" = "$LOCAL_REGISTRY" ]; then
    [ "$OVERLAY" = kind ] || fail "overlay $OVERLAY needs a registry that its cluster reaches: REGISTRY=<registry>/<path>, as given to \`make push\`"
    [ -n "$(pushed operator)" ] || fail "the operator's image was not pushed yet; run \`make images push\`"
  fi
  say "applying manifests/overlays/$OVERLAY to $CONTEXT with $(operator_image)"
  manifests | k apply --server-side --force-conflicts --filename - > /dev/null
  k wait --for=condition=Established crd/qmljobs.qml.dev --timeout=60s > /dev/null
  k rollout status deployment/qmljob-operator --namespace "$NAMESPACE" --timeout=180s > /dev/null || { why_not_running; fail "the operator does not become ready (see above)"; }
  say "the operator runs: kubectl get qmljobs. Undo: make undeploy"
}

why_not_running() {
  k get pods --namespace "$NAMESPACE" --output wide
  k events --namespace "$NAMESPACE" | tail -15
  k logs --namespace "$NAMESPACE" --selector app.kubernetes.io/component=operator --tail=20 --prefix || true
} >&2

undeploy() {
  local jobs; jobs=$({ k get qmljobs --all-namespaces --no-headers 2> /dev/null || true; } | wc -l)
  manifests > "$folder/all.yaml"
  if [ "${ALL:-}" = 1 ]; then
    say "removing the operator and the CRD, and with it $jobs QMLJob(s) and their pods"
    k delete crd qmljobs.qml.dev --ignore-not-found > /dev/null
  fi
  k delete --ignore-not-found --filename <(without_crd < "$folder/all.yaml") > /dev/null
  if [ "${ALL:-}" = 1 ]; then
    say "nothing is left on the cluster. What jobs wrote to buckets stays"
  else
    say "the operator is gone. $jobs QMLJob(s), their pods and the CRD stay, and nobody looks after them; \`make deploy\` takes them up again, \`make undeploy ALL=1\` deletes them"
  fi
}

without_crd() { awk 'BEGIN {RS = "---\n"; ORS = "---\n"} !/\nkind: CustomResourceDefinition\n/'; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
case ${1:-} in
  deploy) need_cluster && deploy ;;
  undeploy) need_cluster && undeploy ;;
  *) echo "usage: $0 deploy|undeploy" >&2; exit 64 ;;
esac
