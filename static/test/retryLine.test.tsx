// Line of a waiting model call.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { render } from "preact";
import { RetryLine } from "../src/components/RetryLine";
import { FrameScript } from "./frameScript";
import { renderText, root, settled, TestSession } from "./testSession";

afterEach(() => render(null, root));

const wait = (attempt: number) =>
  ({ delta: "retry", call: 1, provider: "Anthropic", attempt, max_attempts: 6, wait_ms: 500, why: "Anthropic is overloaded (529): busy" }) as const;

/** Returns a connected session whose agent is in the turn of a message. */
function runningSession(): { session: TestSession; script: FrameScript } {
  const session = new TestSession();
  const script = new FrameScript().addAction("user", "message", { content: "Build it", mode: "queue" });
  script.addObservation("chat", "Build it", {}).state("running");
  session.listener.opened();
  session.receive({ status: "hello", session: null, last_seq: 0, state: null }, ...script.frames.splice(0), { status: "synced", seq: 3 });
  return { session, script };
}

async function shown(session: TestSession): Promise<string> {
  await settled();
  return renderText(<RetryLine live={session.live} />);
}

test("a wait is one quiet line with a count", async () => {
  const { session } = runningSession();
  assert.equal(await shown(session), "");
  session.receive(wait(2), wait(3));
  assert.equal(await shown(session), "Waiting for Anthropic, attempt 3 of 6…");
  assert.equal(root.querySelector(".bad"), null);
});

test("an answer, its notice, the end of the turn and a new connection end the wait", async () => {
  const ends: ((script: FrameScript) => unknown)[] = [
    (script) => script.push({ delta: "text", item: "i", offset: 0, content: "Well" }),
    (script) => script.addObservation("notice", "", { code: "provider_retried", detail: "answered at attempt 3", attempts: 3, waited_ms: 9 }),
    (script) => script.addObservation("error", "", { code: "model_error", detail: "Anthropic is overloaded" }),
    (script) => script.state("idle"),
    (script) => script.push({ status: "hello", session: null, last_seq: 3, state: "running" }),
  ];
  for (const end of ends) {
    const { session, script } = runningSession();
    session.receive(wait(2));
    end(script);
    session.play(script);
    assert.equal((await shown(session)).includes("Waiting"), false, end.toString());
  }
});

test("retries of earlier versions and their notice are not red", () => {
  const script = new FrameScript().addObservation("error", "", { code: "provider_retrying", detail: "busy; retrying in 1.0 s" });
  script.addObservation("notice", "", { code: "provider_retried", detail: "busy; the model answered at attempt 2" });
  script.addObservation("error", "", { code: "model_error", detail: "busy" });
  const tones = script.play().rows.map((row) => row.kind === "notice" && row.tone);
  assert.deepEqual(tones, ["quiet", "quiet", "bad"]);
});
