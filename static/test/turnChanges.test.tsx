// Changed files below the end of their turn.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, before, test } from "node:test";
import { render } from "preact";
import { changesOf } from "../src/changes/changesState";
import { TurnCard } from "../src/components/TurnCard";
import { loadLazy } from "../src/loadLazy";
import { currentSession, showSession } from "../src/state/currentSession";
import type { TurnRow } from "../src/state/rows";
import type { ScreenState } from "../src/state/screenState";
import { FrameScript, rowsOf } from "./frameScript";
import { renderText, root, settled, TestSession } from "./testSession";

before(loadLazy);
afterEach(() => render(null, root));

const turnsOf = (state: ScreenState) => state.rows.filter((row): row is TurnRow => row.kind === "turn");

function twoTurns(): FrameScript {
  const script = new FrameScript();
  for (const turn of ["turn-1", "turn-4"]) script.addObservation("chat", "go", { turn }).state("running").state("idle");
  return script;
}

test("capture belongs to the turn with its name, also if it comes late", () => {
  const script = twoTurns();
  script.addObservation("checkpoint", "", { checkpoint: "turn-1", kind: "turn", files: 1, bytes: 2 });
  script.addObservation("changes", "", { checkpoint: "turn-1", since: "start", files: [], added: 1, removed: 0 });
  const [first, second] = turnsOf(script.play());
  assert.deepEqual([first?.checkpoint?.files, first?.changes?.since], [1, "start"]);
  assert.deepEqual([second?.checkpoint, second?.changes], [undefined, undefined]);
});

test("restore is a quiet line, and other captures are none", () => {
  const script = new FrameScript().addObservation("checkpoint", "", { checkpoint: "start", kind: "start", files: 1, bytes: 2 });
  script.addObservation("checkpoint", "", { checkpoint: "before-restore-7", kind: "before_restore", files: 1, bytes: 2 });
  script.addObservation("checkpoint", "", { checkpoint: "restore-7", kind: "restore", of: "turn-1", files: 1, bytes: 2 });
  assert.deepEqual(rowsOf(script.play()), ["quiet: Workspace restored"]);
});

test("card lists files with counts and what was left out, and opens the tab at its turn", async () => {
  const files = Array.from({ length: 7 }, (_, n) => ({ path: `f${n}.txt`, change: n === 0 ? ("created" as const) : ("modified" as const), added: n, removed: 1 }));
  const script = twoTurns();
  script.addObservation("checkpoint", "", { checkpoint: "turn-4", kind: "turn", files: 1, bytes: 2, partial: true, left_out: [{ path: "big.bin", reason: "too_large" }] });
  script.addObservation("changes", "", { checkpoint: "turn-4", since: "turn-1", files, more: 3, added: 21, removed: 7 });
  const session = new TestSession();
  const hide = showSession(session.live);
  session.play(script);
  const text = await renderText(<TurnCard row={turnsOf(session.live.state.peek())[1]!} />);
  assert.match(text, /10 changed files \+21/);
  assert.match(text, /f0\.txtnew\+0/);
  assert.match(text, /f4\.txt/);
  assert.doesNotMatch(text, /f5\.txt/);
  assert.match(text, /5 others/);
  assert.match(text, /Not captured: big\.bin \(too large\)/);
  assert.match(text, /may be incomplete/);
  root.querySelector<HTMLElement>(".turn-changes .link")!.click();
  await settled();
  assert.equal(changesOf("s1").scope.peek(), "at:turn-4");
  assert.deepEqual([currentSession.peek()?.layout.peek().tab, currentSession.peek()?.layout.peek().folded], ["changes", null]);
  hide();
});

test("turn without changes shows nothing below it", async () => {
  const [row] = turnsOf(twoTurns().play());
  assert.equal(await renderText(<TurnCard row={row!} />), "Finished2.0 s");
});
