// Modes, plans, decisions on tool cards, and rules.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { render } from "preact";
import { ApprovalRules } from "../src/approvals/ApprovalRules";
import { PlanApproval } from "../src/approvals/PlanApproval";
import { ruleText } from "../src/approvals/ruleText";
import { SessionSecurity } from "../src/approvals/SessionSecurity";
import { Composer } from "../src/components/Composer";
import { Home } from "../src/components/Home";
import { ToolCall } from "../src/components/ToolCall";
import { loadLazy } from "../src/loadLazy";
import { activityOf } from "../src/state/activity";
import { options } from "../src/state/serverOptions";
import { startTask } from "../src/state/startTask";
import * as written from "../src/state/taskDraft";
import type { ServerOptions } from "../src/wire/rest";
import { FrameScript } from "./frameScript";
import { press, root, settled, renderText, TestSession } from "./testSession";

let asked: { method: string; address: string; body: string }[] = [];
let answers: Record<string, unknown> = {};
globalThis.fetch = (async (address: string, { method = "GET", body }: RequestInit) => {
  asked.push({ method, address, body: String(body) });
  return new Response(JSON.stringify(answers[address] ?? { id: "s1", items: [], total: 0 }));
}) as typeof fetch;

afterEach(() => {
  render(null, root);
  asked = [];
  answers = {};
  options.value = null;
});

/** Returns the tool card after these frames. */
async function card(script: FrameScript): Promise<string> {
  await loadLazy();
  const row = script.play().rows.find((one) => one.kind === "tool");
  assert.ok(row?.kind === "tool");
  render(null, root);
  const text = await renderText(<ToolCall row={row} />);
  return text.replace(/\s+/g, " ");
}

const ties = { item: "c" };
const asks = () =>
  new FrameScript()
    .addAction("agent", "run", { command: "git push" }, { ...ties, risk: { level: "medium", reasons: ["pushes"] } })
    .addObservation("confirm", "", { request: "q", action: "git push", options: ["allow", "deny"] }, ties);

test("tool card shows the risk, the wait and the decision", async () => {
  assert.match(await card(asks()), /^Rungit pushMedium riskwaiting for you/);
  const decided = (extras: object) => card(asks().addObservation("confirmed", "", { request: "q", decision: "allow", ...extras } as never));
  assert.match(await decided({ by: "person", who: "Firefox on Linux" }), /^Running.*Allowed by Firefox on Linux$/);
  assert.match(await decided({ by: "person", who: "token", edited: true }), /Edited and allowed by token$/);
  assert.match(await decided({ decision: "allow_always", who: "Firefox", rule: "Allow `git push *`" }), /Always allowed by Firefox · Rule added: Allow git push \*$/);
  assert.match(await decided({ decision: "deny", by: "policy", who: "timeout" }), /^Rungit.*Denied by timeout$/);
  assert.match(await decided({ decision: "deny", withdrawn: true }), /Approval withdrawn$/);
  const low = new FrameScript().addAction("agent", "run", { command: "ls" }, { ...ties, risk: { level: "low" } });
  assert.doesNotMatch(await card(low), /risk/);
});

test("call that the policy denied names the rule, in any order of events", async () => {
  const denied = (script: FrameScript) => script.addObservation("confirmed", "", { request: "r", decision: "deny", by: "policy", who: "rule `git push*`", reason: "not from here" }, ties);
  const acts = (script: FrameScript) => script.addAction("agent", "run", { command: "git push" }, ties);
  const ends = (script: FrameScript) => script.addObservation("error", "", { code: "denied", detail: "not from here" }, ties);
  const expected = /^Rungit pushdeniedDenied by rule git push\*: not from here$/;
  assert.match(await card(ends(acts(denied(new FrameScript())))), expected);
  assert.match(await card(ends(denied(acts(new FrameScript())))), expected);
  const { rows } = ends(acts(denied(new FrameScript()))).play();
  assert.equal(rows.length, 1, "no notice beside the card");
});

test("risk from an agent of unknown shape is not shown", async () => {
  const odd = (risk: unknown) => card(new FrameScript().addAction("agent", "run", { command: "ls" }, { ...ties, risk: risk as never }));
  for (const risk of ["high", { level: "huge" }, { level: 5 }, [], { reasons: 1 }]) assert.doesNotMatch(await odd(risk), /risk/);
});

test("person's answer and decision make no row of their own", () => {
  const script = asks().addAction("user", "confirm", { request: "q", decision: "deny", reason: "later" }).addObservation("confirmed", "", { request: "q", decision: "deny" });
  const { rows, approvals } = script.play();
  assert.deepEqual([rows.map(({ kind }) => kind), approvals], [["tool"], []]);
});

test("requests stay open over a pause and end with the turn", () => {
  const open = (script: FrameScript) => script.play().approvals.map(({ request }) => request);
  assert.deepEqual(open(asks().state("awaiting_confirmation").state("paused").state("awaiting_confirmation")), ["q"]);
  assert.deepEqual(open(asks().state("awaiting_confirmation").state("running")), []);
  assert.equal(activityOf(asks().state("awaiting_confirmation").play()).text, "Waiting for you");
});

test("mode of the session is shown and changed at the message field", async () => {
  const testSession = new TestSession();
  const script = new FrameScript().state("idle");
  testSession.play(script);
  const session = { id: "s1", title: "", state: "idle", mode: "ask", created_at: "", updated_at: "", last_seq: 1 };
  testSession.receive({ status: "hello", session, last_seq: 1, state: "idle" });
  await loadLazy();
  await renderText(<Composer live={testSession.live} />);
  press("Mode: Ask. Change");
  await settled();
  const entries = [...root.querySelectorAll<HTMLElement>("[role=radio]")];
  assert.deepEqual(entries.map((one) => one.querySelector("span + span")?.firstChild?.textContent), ["Plan", "Ask", "Edits", "Auto"]);
  assert.equal(document.activeElement, entries[1]);
  entries[1]!.dispatchEvent(new window.KeyboardEvent("keydown", { key: "ArrowUp", bubbles: true, cancelable: true }));
  assert.equal(document.activeElement, entries[0]);
  entries[0]!.click();
  await settled();
  assert.deepEqual(testSession.sent.map(({ id: _, ...request }) => request), [{ action: "set_mode", args: { mode: "plan" } }]);
  testSession.play(script.addAction("user", "set_mode", { mode: "plan" }));
  await settled();
  assert.ok(root.querySelector("[aria-label='Mode: Plan. Change']"));
  assert.equal(testSession.live.state.value.rows.at(-1)?.kind, "notice");
});

const planned = () =>
  new FrameScript()
    .addAction("user", "set_mode", { mode: "plan" })
    .addAction("user", "message", { content: "Plan it." })
    .addObservation("chat", "Plan it.", {}, { cause: 2 })
    .state("running")
    .addObservation("plan", "1. Write", { path: "PLAN.md", items: [] }, { item: "p" })
    .state("idle", undefined, { turn_over: true });

async function showPlan(script: FrameScript): Promise<TestSession> {
  const testSession = new TestSession();
  testSession.play(script);
  testSession.receive({ status: "synced", seq: script.frames.length });
  await renderText(<PlanApproval live={testSession.live} />);
  return testSession;
}

test("approved plan changes the mode and starts the work in one request", async () => {
  const testSession = await showPlan(planned());
  const select = root.querySelector("select")!;
  assert.deepEqual([...select.options].map(({ value }) => value), ["ask", "edits", "auto"]);
  select.value = "edits";
  select.dispatchEvent(new window.Event("change", { bubbles: true }));
  await settled();
  press("Approve and start");
  await settled();
  assert.deepEqual(testSession.sent.map(({ id: _, ...request }) => request), [
    { action: "set_mode", args: { mode: "edits", message: "The plan is approved. Carry it out." } },
  ]);
  assert.equal(root.textContent, "", "the bar goes at once");
});

test("plan bar is shown only after a turn that ended with a plan", async () => {
  const bar = async (script: FrameScript) => {
    await showPlan(script);
    return root.textContent !== "";
  };
  assert.equal(await bar(planned()), true);
  press("Keep planning");
  await settled();
  assert.equal(root.textContent, "");
  render(null, root);
  assert.equal(await bar(planned().addAction("user", "set_mode", { mode: "auto" })), false);
  assert.equal(await bar(planned().state("running")), false);
  const further = planned().addAction("user", "message", { content: "Why?" }).addObservation("chat", "Why?", {}, { cause: 7 }).state("running").state("idle", undefined, { turn_over: true });
  assert.equal(await bar(further), false, "the plan is from an earlier turn");
});

test("new session has the chosen mode", async () => {
  const models = [{ name: "demo", demo: true, takes_images: false }];
  options.value = { agents: [], models, defaults: { model: "demo", effort: null, mode: "ask" }, sandbox: {} } as unknown as ServerOptions;
  await renderText(<Home />);
  press("Mode: Ask. Change");
  await settled();
  [...root.querySelectorAll<HTMLElement>("[role=radio]")].at(-1)!.click();
  await settled();
  written.task.value = "go";
  await startTask();
  const { mode } = JSON.parse(asked.find(({ method }) => method === "POST")!.body) as { mode?: string };
  assert.equal(mode, "auto");
});

test("rules are listed, and those of a project can be removed", async () => {
  answers["/api/approvals/rules"] = {
    config: [{ tool: "run", command: "git push*", action: "ask" }, { path: "/etc/**", action: "deny", reason: "Not yours." }],
    projects: [{ source: "/home/me/p", rules: [{ id: "7", command: "cargo *", action: "allow" }] }],
  };
  const text = await renderText(<ApprovalRules />);
  assert.match(text, /Ask ?git push\*/);
  assert.match(text, /Deny ?on \/etc\/\*\* Not yours\./);
  assert.equal(root.querySelectorAll("button").length, 1);
  press("Remove rule: `cargo *`");
  await settled();
  assert.deepEqual(asked.map(({ method, address }) => `${method} ${address}`), ["GET /api/approvals/rules", "DELETE /api/approvals/rules/7", "GET /api/approvals/rules"]);
});

test("security of a session shows its rules and findings", async () => {
  answers["/api/sessions/s1/security"] = {
    mode: "ask",
    analyzer: "rules",
    rules: [{ id: "0", command: "git push *", action: "allow" }],
    findings: [{ seq: 4, at: "", message: "rm -rf /", level: "high", reasons: ["deletes all"], analyzer: "rules" }],
  };
  const text = await renderText(<SessionSecurity live={new TestSession().live} />);
  assert.match(text, /ModeAskAnalyzerrules/);
  assert.match(text, /High risk rm -rf \/deletes all/);
  assert.equal(root.querySelector<HTMLAnchorElement>(".findings a")?.getAttribute("href"), "/sessions/s1?at=4");
  press("Remove rule: `git push *`");
  await settled();
  assert.equal(asked[1]?.address, "/api/sessions/s1/security/rules/0");
});

test("rule in words", () => {
  assert.equal(ruleText({ action: "ask" }), "Every call");
  assert.equal(ruleText({ tool: "write", path: "docs/**", agent: "x", action: "allow" }), "tool `write` on `docs/**` by agent `x`");
  assert.equal(ruleText({ tool: "browse", host: "*.example.org", action: "deny" }), "tool `browse` at `*.example.org`");
});
