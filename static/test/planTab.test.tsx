// Plan tab: steps, ticks, conflicts and the editor, with the test as the server.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { render } from "preact";
import { PlanTab } from "../src/components/PlanTab";
import { planParts, withState } from "../src/plan/planText";
import { FrameScript } from "./frameScript";
import { press, renderText, root, settled, TestSession, write } from "./testSession";

beforeEach(() => localStorage.clear());
afterEach(() => render(null, root));

const PLAN = "# Work\n\n- [x] one\n- [~] two\n- [ ] three\n";
const PATH = ".greenroom/plan.md";

/** Server of one file. Counts its versions. */
class PlanServer {
  version = 1;
  puts: string[] = [];
  onPut = () => {};
  constructor(public text: string | null) {
    globalThis.fetch = async (address, { method = "GET", headers, body } = {}) => {
      assert.equal(String(address), "/api/sessions/s1/files/.greenroom/plan.md");
      const given = headers as Record<string, string>;
      if (method === "GET") return this.read();
      this.onPut();
      this.onPut = () => {};
      const fits = this.text === null ? given["If-None-Match"] === "*" : given["If-Match"] === this.tag;
      if (!fits) return answer("changed", 412);
      this.write(String(body));
      this.puts.push(String(body));
      return new Response("{}", { status: 200, headers: { ETag: this.tag } });
    };
  }
  get tag(): string {
    return `"${this.version}"`;
  }
  write(text: string): void {
    this.text = text;
    this.version += 1;
  }
  private read(): Response {
    if (this.text === null) return answer("not_found", 404);
    const { length } = new TextEncoder().encode(this.text);
    const headers = { "Content-Range": `bytes 0-${length - 1}/${length}`, ETag: this.tag, "Content-Type": "text/plain" };
    return new Response(this.text, { headers, status: 206 });
  }
}

const answer = (code: string, status: number) => new Response(JSON.stringify({ error: { code, message: code } }), { status });

/** Shows a session with this plan. */
async function shown(markdown = PLAN, path = PATH): Promise<{ session: TestSession; script: FrameScript }> {
  // Edits outlive the tab, so each test has the session to itself.
  const session = new TestSession();
  (session.live as { id: string }).id = "s1";
  const script = new FrameScript().state("idle").addObservation("plan", markdown, { path, items: [] }, { item: "c1" });
  session.play(script);
  await renderText(<PlanTab live={session.live} />);
  return { session, script };
}

const boxes = () => [...root.querySelectorAll<HTMLInputElement>(".plan-step input")];
const ticked = () => boxes().map((box) => (box.indeterminate ? "~" : box.checked ? "x" : " ")).join("");
const alert = () => root.querySelector("[role=alert]")?.textContent ?? "";

function tick(index: number): Promise<void> {
  boxes()[index]!.click();
  return settled();
}

test("lines with a box are steps, and a fence has none", () => {
  const kinds = (markdown: string) => planParts(markdown).map((part) => (part.kind === "steps" ? part.steps.map(({ state, text }) => `${state} ${text}`).join() : part.text));
  assert.deepEqual(kinds("Intro\n- [ ] a\n  * [X] b\n1. [/] c\n\nEnd"), ["Intro", "pending a,completed b,in_progress c", "End"]);
  assert.deepEqual(kinds("```\n- [ ] a\n```"), ["```\n- [ ] a\n```"]);
  assert.deepEqual(kinds("- [x](https://example.org)\n- [link]: y"), ["- [x](https://example.org)\n- [link]: y"]);
});

test("moved step keeps its tick, and an ambiguous one is not guessed", () => {
  const [part] = planParts("- [ ] a\r\n- [ ] b");
  assert.ok(part?.kind === "steps");
  const [a, b] = part.steps;
  assert.equal(withState("- [ ] a\r\n- [ ] b", a!, "completed"), "- [x] a\r\n- [ ] b");
  assert.equal(withState("new\n- [ ] a\n- [ ] b", b!, "in_progress"), "new\n- [ ] a\n- [~] b");
  assert.equal(withState("- [ ] b\nx\n- [ ] b", b!, "completed"), null);
  assert.equal(withState("- [ ] B", b!, "completed"), null);
});

test("tick is saved, shown at once, and replaced by the journal's plan", async () => {
  const server = new PlanServer(PLAN);
  const { session, script } = await shown();
  assert.equal(ticked(), "x~ ");
  assert.match(root.textContent ?? "", /1 of 3 done/);
  assert.equal(boxes()[1]!.getAttribute("aria-describedby"), "plan-state-3");
  await tick(2);
  assert.equal(server.text, "# Work\n\n- [x] one\n- [~] two\n- [x] three\n");
  assert.equal(ticked(), "x~x");
  script.frames.length = 0;
  session.play(script.addObservation("plan", "- [ ] other", { path: PATH, items: [] }, { source: "user" }));
  await settled();
  assert.equal(ticked(), " ");
});

test("ticks in a row are all saved", async () => {
  const server = new PlanServer(PLAN);
  await shown();
  boxes()[0]!.click();
  boxes()[1]!.click();
  await tick(2);
  assert.equal(server.text, "# Work\n\n- [ ] one\n- [x] two\n- [x] three\n");
  assert.equal(server.puts.length, 3);
});

test("tick joins a change of the agent, and a missing step is an error", async () => {
  const server = new PlanServer(PLAN);
  await shown();
  server.onPut = () => server.write(`first\n${PLAN}`);
  await tick(2);
  assert.equal(server.text, "first\n# Work\n\n- [x] one\n- [~] two\n- [x] three\n");
  server.write("- [ ] another\n");
  await tick(0);
  assert.match(alert(), /changed meanwhile/);
  assert.equal(ticked(), " ", "the file's newest plan is shown");
  assert.equal(server.puts.length, 1);
});

test("deleted plan is written again, and a rejected tick is taken back", async () => {
  const server = new PlanServer(null);
  await shown();
  await tick(2);
  assert.equal(server.text, "# Work\n\n- [x] one\n- [~] two\n- [x] three\n");
  globalThis.fetch = async () => answer("disk_full", 507);
  await tick(0);
  assert.equal(ticked(), "x~ ");
  assert.match(alert(), /disk_full/);
});

test("editor saves the Markdown and returns the focus", async () => {
  const server = new PlanServer(PLAN);
  await shown();
  press("Edit");
  await settled();
  await write("- [x] all\n");
  press("Save");
  await settled();
  assert.equal(server.text, "- [x] all\n");
  assert.equal(ticked(), "x");
  assert.equal(document.activeElement?.textContent, "Edit");
  press("Edit");
  await settled();
  server.write("- [ ] theirs\n");
  await write("- [ ] mine\n");
  press("Save");
  await settled();
  assert.match(alert(), /Changed meanwhile/);
  press("Overwrite");
  await settled();
  assert.equal(server.text, "- [ ] mine\n");
});

test("ended session and plans outside the workspace are read-only", async () => {
  const { session } = await shown();
  session.play(new FrameScript().push({ seq: 9, at: "", source: "server", observation: "agent_state_changed", content: "", extras: { agent_state: "ended", since: "" } } as never));
  await settled();
  assert.ok(boxes().length === 3 && boxes().every((box) => box.disabled) && !root.querySelector("button"));
  await shown(PLAN, "/srv/plan.md");
  assert.ok(boxes().every((box) => box.disabled) && !root.querySelector("button"));
});
