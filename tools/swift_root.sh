#!/usr/bin/env bash
# A Debian trixie with Swift 6 in a folder of its own, for machines that have no Swift.
#
#   tools/swift_root.sh make                                # make it if it is missing; print its path
#   tools/swift_root.sh is-made                             # whether it was made, as exit status
#   tools/swift_root.sh run [--mount FOLDER]... COMMAND...  # run a command in it
#
# The root is made once (5 minutes, 3.3 GB) and kept in the cache: MLCC_SWIFT_ROOT, by default
# ~/.cache/mlcc/swift-root. debootstrap and apt check Debian's signatures. It runs as root on Linux.
# `run` shows each FOLDER or file at the same path, in the current folder if that is visible there,
# with the variables of the environment whose names begin with MLCC_ or SWIFT_. /proc is mounted
# because Swift finds its libraries by $ORIGIN, which the loader reads from /proc/self/exe; every
# mount ends with the command, because it runs in a mount namespace of its own.
set -euo pipefail

root=${MLCC_SWIFT_ROOT:-${XDG_CACHE_HOME:-$HOME/.cache}/mlcc/swift-root}
suite=trixie
mirror=${MLCC_DEBIAN_MIRROR:-http://deb.debian.org/debian}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
packages="swiftlang swiftlang-dev g++ libc6-dev"
stamp=etc/mlcc-swift-root # written last; its text is what the root was made from

fail() {
    echo "swift_root.sh: $1" >&2
    exit 1
}

is_made() { [ "$(cat "$root/$stamp" 2>/dev/null)" = "$suite $packages" ]; }

require() {
    [ "$(id -u)" = 0 ] || fail "chroot and mount need root. Type: sudo -E tools/swift_root.sh $*"
    for tool in debootstrap unshare flock; do
        command -v $tool >/dev/null || fail "$tool is missing. Type: apt install debootstrap util-linux"
    done
    [ -f $keyring ] || fail "Debian's keys are missing. Type: apt install debian-archive-keyring"
}

# inside ROOT FOLDERS COMMAND...: FOLDERS is separated by newlines
inside() {
    local target=$1 folders=$2 words=(env -i HOME=/root PATH=/usr/bin:/bin:/usr/sbin:/sbin) name
    shift 2
    words+=(LANG=C.UTF-8 TERM=dumb DEBIAN_FRONTEND=noninteractive)
    for name in $(compgen -e); do
        case $name in MLCC_* | SWIFT_* | *_proxy | *_PROXY | *SAN_OPTIONS) words+=("$name=${!name}") ;; esac
    done
    # the shell inside mounts, then becomes the command
    exec unshare -m bash -c '
        target=$1 folders=$2 here=$PWD
        shift 2
        mount --rbind /proc "$target/proc"
        mount --rbind /dev "$target/dev"
        while IFS= read -r folder; do
            [ -n "$folder" ] || continue
            if [ -d "$folder" ]; then
                mkdir -p "$target$folder"
            else # a library
                mkdir -p "$(dirname "$target$folder")"
                touch "$target$folder"
            fi
            mount --bind "$folder" "$target$folder"
        done <<<"$folders"
        [ -d "$target$here" ] || here=/
        exec chroot "$target" "${@:2:$1}" sh -c "cd \"\$0\" && exec \"\$@\"" "$here" "${@:$1+2}"
    ' bash "$target" "$folders" "${#words[@]}" "${words[@]}" "$@"
}

make_root() {
    local partial=$root.partial file
    is_made && return
    require make
    mkdir -p "$(dirname "$root")"
    exec 9>"$root.lock"
    flock 9 # another process may be making it
    is_made && return
    rm -rf --one-file-system "$partial"
    debootstrap --variant=minbase --keyring=$keyring $suite "$partial" "$mirror" >&2
    umount "$partial/proc" 2>/dev/null || true
    for file in /etc/resolv.conf /etc/hosts; do
        if [ -f "$file" ]; then cat "$file" >"$partial$file"; fi
    done
    # shellcheck disable=SC2086  # a list
    (inside "$partial" "" apt-get -q install -y --no-install-recommends $packages) >&2 9>&-
    rm -rf "$partial"/var/cache/apt/archives/*.deb "$partial"/var/lib/apt/lists/*
    echo "$suite $packages" >"$partial/$stamp"
    rm -rf --one-file-system "$root"
    mv "$partial" "$root"
}

case ${1:-} in
is-made) is_made ;;
make)
    make_root
    echo "$root"
    ;;
run)
    shift
    folders=
    while [ "${1:-}" = --mount ]; do
        folders+=$(realpath -s "$2")$'\n'
        shift 2
    done
    is_made || fail "there is no root at $root. Type: tools/swift_root.sh make"
    require run
    inside "$root" "$folders" "$@"
    ;;
*)
    fail "type: tools/swift_root.sh make, or tools/swift_root.sh run [--mount FOLDER]... COMMAND..."
    ;;
esac
