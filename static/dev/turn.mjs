// Turn of a simulated session. Each step changes one thing.

import { pause } from "./scriptedSession.mjs";

const THOUGHT = `The task needs a small script. I write it, make it executable, run it, and look at what it prints.
If it fails I correct it.`;

const SCRIPT = `#!/usr/bin/env bash
set -euo pipefail

echo "hello"
`;

const DIFF = `--- a/hello.sh
+++ b/hello.sh
@@ -1,4 +1,5 @@
 #!/usr/bin/env bash
 set -euo pipefail
 
-echo "hello"
+name="\${1:-world}"
+echo "hello, $name"
`;

const REPORT = `The script is there, and it **works**:

\`\`\`bash
#!/usr/bin/env bash
set -euo pipefail

name="\${1:-world}"
echo "hello, $name"
\`\`\`

| Call | Prints |
|---|---|
| \`./hello.sh\` | hello, world |
| \`./hello.sh Ada\` | hello, Ada |

What I did:

1. wrote \`hello.sh\`, with \`set -euo pipefail\`,
2. gave it an optional name,
3. ran its tests: **12 passed**, 1 failed on purpose.

![a picture](https://example.org/picture.png) is shown as a link only.`;

export async function* turn(task, number) {
  const item = (name) => `${name}-${number}`;

  yield* growing("thinking", item("t"), THOUGHT, 12);
  yield (session) => session.addObservation("agent", "think", THOUGHT, {}, { item: item("t") });
  yield* growing("text", item("a"), `I begin with the script for “${task.slice(0, 60)}”.`, 12);
  yield (session) =>
    session.addObservation("agent", "message", `I begin with the script for “${task.slice(0, 60)}”.`, {}, { item: item("a") });
  yield (session) => session.addUsage(2300, 180);

  const plan = "- [x] write the script\n- [ ] run it\n- [ ] report";
  yield (session) =>
    session.addObservation("agent", "plan", plan, {
      path: "PLAN.md",
      items: [{ text: "write the script", done: true }, { text: "run it", done: false }, { text: "report", done: false }],
    }, { item: item("p") });

  yield* growing("tool_input", item("w"), JSON.stringify({ path: "hello.sh", content: SCRIPT }), 8);
  yield* call(item("w"), "write", { path: "hello.sh", content: SCRIPT }, 60, "", { path: "hello.sh", bytes: SCRIPT.length });
  yield* call(item("r"), "read", { path: "hello.sh" }, 20, SCRIPT, { path: "hello.sh" });
  const lines = ['name="${1:-world}"', 'echo "hello, $name"'];
  yield* call(item("e"), "edit", { path: "hello.sh", change: "REPLACE", line: 4, lines }, 40, "", {
    path: "hello.sh", line: 4, change: "REPLACE", lines, diff: DIFF,
  });

  if (task.includes("ask")) {
    let asked;
    yield (session) => (asked = session.ask("rm -r build", "high", "It deletes a directory that it did not make."));
    await asked;
  }
  const command = "./hello.sh && ./test.sh --all";
  yield (session) => session.addAction("agent", "run", { command }, { item: item("x") });
  const output = Array.from({ length: 13 }, (_, test) => `\x1b[32mtest ${test + 1}\x1b[0m ${test === 7 ? "FAILED" : "ok"}\n`);
  for (const line of ["hello, world\n", ...output]) {
    await pause(220);
    yield (session) => session.grow("output", item("x"), line);
  }
  yield (session) =>
    session.addObservation("agent", "run", ["hello, world\n", ...output].join(""), { command, exit_code: 1, duration_ms: 3120 }, { item: item("x") });
  yield (session) => session.addUsage(5100, 420);

  yield* growing("text", item("z"), REPORT, 14);
  yield (session) => session.addObservation("agent", "message", REPORT, {}, { item: item("z") });
  yield (session) => session.addUsage(6100, 520);
}

async function* growing(delta, item, text, everyMs) {
  for (const piece of text.match(/\s*\S+/g) ?? []) {
    await pause(everyMs);
    yield (session) => session.grow(delta, item, piece);
  }
}

async function* call(item, name, args, takesMs, content, extras) {
  yield (session) => session.addAction("agent", name, args, { item });
  await pause(takesMs);
  yield (session) => session.addObservation("agent", name, content, extras, { item });
}
