#!/bin/bash
# Scores the workspace by the tests of a Harbor task, as Harbor's verifier does: `tests/` lies at
# /tests, /tests/test.sh runs in the working folder, and writes /logs/verifier/reward.txt or
# reward.json. Lies in an imported task's folder and runs in a copy of the workspace (`[evaluate]
# copy`). What the tests print goes to stderr; stdout has nothing but the object that Houston reads.
set -u
here=$(pwd -P)
out=/logs/verifier
rm -rf /tests "$out"  # in an image, the agent may have laid something there
mkdir -p "$out" /logs/agent /logs/artifacts && cp -r "$here/tests" /tests || exit 1
chmod -R u+rwX /tests && chmod +x /tests/test.sh || exit 1
[ -f "$here/verifier.env" ] && { set -a; . "$here/verifier.env"; set +a; }
cd -- "$WORKSPACE" || exit 1
/tests/test.sh >"$out/test-stdout.txt" 2>&1
code=$?
tail -c 20000 "$out/test-stdout.txt" >&2
number='-?[0-9]+([.][0-9]+)?([eE][-+]?[0-9]+)?'
if [ -s "$out/reward.json" ]; then
  text=$(tr -d '\n' <"$out/reward.json")
  # A bare number, or the member `reward`, or the only member.
  if [[ $text =~ ^[[:space:]]*($number)[[:space:]]*$ ]] ||
    [[ $text =~ \"reward\"[[:space:]]*:[[:space:]]*($number) ]] ||
    [[ $text =~ ^[[:space:]]*\{[[:space:]]*\"[^\"]*\"[[:space:]]*:[[:space:]]*($number)[[:space:]]*\}[[:space:]]*$ ]]; then
    reward=${BASH_REMATCH[1]}
  else
    echo "reward.json has neither a member \"reward\" nor one member alone" >&2
    exit 1
  fi
elif [ -s "$out/reward.txt" ]; then
  reward=$(tr -d '[:space:]' <"$out/reward.txt")
  [[ $reward =~ ^[+]?($number)$ ]] || { echo "reward.txt holds no number" >&2; exit 1; }
  reward=${BASH_REMATCH[1]}
else
  echo "the tests wrote no reward (exit code $code)" >&2
  exit 1
fi
printf '{"raw_score": %s, "reward": %s, "exit_code": %d}\n' "$reward" "$reward" "$code"
