# What holds of every image.
[ "$(id -u):$(id -g):$(id -un)" = 10001:10001:stillhouse ]
[ -n "$STILLHOUSE_REVISION" ]
for place in / /etc /usr/bin /opt/stillhouse /var/tmp; do
  if touch "$place/written" 2>/dev/null; then echo "$place can be written to" >&2; exit 1; fi
done
for place in /volume /scratch /tmp; do touch "$place/written"; done
for tool in cc gcc g++ clang tcc as ld make pip pip3; do
  if command -v "$tool"; then echo "it was left behind" >&2; exit 1; fi
done
if python -c "import pip" 2>/dev/null; then echo "pip was left behind" >&2; exit 1; fi
privileged="$(find / -xdev -type f -perm /6000 2>/dev/null || true)"
[ -z "$privileged" ] || { echo "set for another user: $privileged" >&2; exit 1; }
# What was mounted while building.
for place in /etc/pip.conf /etc/pip-ca.pem /wheels /install /locks /source /tmp/finish; do
  [ ! -s "$place" ] || { echo "$place was left behind" >&2; exit 1; }
done
stillhouse --version
