# shellcheck shell=bash
# shellcheck disable=SC2034 # variables are shared with the other parts
# What every script here needs: where things are, and how to talk.
# Sourced, never run.

# The checkout, and what the scripts build for use outside cargo's own folder.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
stage=$root/target/stage
readonly root stage

say() { printf '%s\n' "$*" >&2; }

# step TEXT: says what begins now, and how long the step before has taken.
step() {
    steps_end
    step_name=$* step_began=$SECONDS
    say "== $step_name ($(date +%T))"
}

steps_end() {
    [ -z "${step_name-}" ] || say "   $((SECONDS - step_began)) s"
    step_name=''
}

die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

# Runs a command as root: directly, or through sudo.
as_root() {
    if [ "$EUID" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo -- "$@"
    else
        die "'$(basename "$1")' needs root: run this as root or install sudo"
    fi
}
