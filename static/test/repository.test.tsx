// Repository of a session and of a new one, with the test as the server.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { render } from "preact";
import { useState } from "preact/hooks";
import { knownRepositories, RepositoryFields } from "../src/repository/RepositoryFields";
import { RepositoryBar } from "../src/repository/RepositoryBar";
import { repositoryOf } from "../src/repository/repositoryState";
import { startWith, type TaskChoices } from "../src/state/startTask";
import { FrameScript, rowsOf } from "./frameScript";
import { press, renderText, root, settled, TestSession, write } from "./testSession";

interface RepositoryAnswer {
  status?: number;
  value?: unknown;
  /** Holds the answer back. */
  after?: Promise<void>;
}

let asked: string[] = [];

/** Answers by method and path. Notes each request with its body. */
function serve(answers: Record<string, RepositoryAnswer>): void {
  asked = [];
  globalThis.fetch = async (address, { method = "GET", body } = {}) => {
    const key = `${method} ${new URL(String(address), "http://127.0.0.1").pathname.replace("/api/", "").replace("sessions/s1/repository", "repository")}`;
    asked.push([key, body].filter(Boolean).join(" "));
    const { status = 200, value, after }: RepositoryAnswer = answers[key] ?? { status: 404, value: { error: { code: "not_found", message: `no \`${key}\`` } } };
    await after;
    return new Response(JSON.stringify(value ?? {}), { status });
  };
}
const rejection = (status: number, code: string, message: string): RepositoryAnswer => ({ status, value: { error: { code, message } } });

const URL_OF_CODE = "https://git.example/code.git";
const commit = (id: string, subject: string) => ({ id: id.repeat(40), subject, author: "Ada", at: "2026-01-01T00:00:00Z" });
const STATUS = {
  url: URL_OF_CODE, ref: null, base_commit: "0".repeat(40), branch: "greenroom/01ab", head: "b".repeat(40),
  commits: [commit("b", "Second"), commit("a", "First")], pushed: null, push: { possible: true, reason: null },
};

beforeEach(() => {
  localStorage.clear();
  Object.assign(window.HTMLDialogElement.prototype, { showModal() {}, close() {} });
});
afterEach(() => {
  render(null, root);
  const { status, dialog, pushed } = repositoryOf("s1");
  for (const signal of [status, dialog, pushed]) Object.assign(signal, { value: null });
  Object.assign(repositoryOf("s1").message, { value: "" });
});

const CLONED = { url: URL_OF_CODE, ref: null, commit: null, branch: null };

async function bar(readOnly = false, repository: typeof CLONED | null = CLONED): Promise<string> {
  const session = new TestSession();
  const record = { id: "s1", title: "", state: "idle", created_at: "", updated_at: "", last_seq: 0, repository };
  session.receive({ status: "hello", session: record, last_seq: 0, state: "idle" }, { status: "synced", seq: 0 });
  return renderText(<RepositoryBar live={session.live} mark={1} readOnly={readOnly} />);
}

test("branch and its commits are shown", async () => {
  serve({ "GET repository": { value: STATUS } });
  const text = await bar();
  for (const part of ["greenroom/01ab", "2 commits, not pushed", "bbbbbbbb Second Ada"]) assert.ok(text.includes(part), `${part}: ${text}`);
});

test("session without a repository shows and asks nothing", async () => {
  serve({});
  assert.equal(await bar(false, null), "");
  assert.deepEqual(asked, []);
});

test("session that is not cloned yet offers neither commit nor push", async () => {
  serve({ "GET repository": { value: { ...STATUS, base_commit: null, branch: null, head: null, commits: [] } } });
  assert.equal(await bar(), "Not cloned yet");
  assert.equal(root.querySelectorAll("button").length, 0);
});

test("ended session offers no commit and no push", async () => {
  serve({ "GET repository": { value: STATUS } });
  await bar(true);
  assert.equal(root.querySelectorAll("button").length, 0);
});

test("proposed message is edited and committed", async () => {
  serve({ "GET repository": { value: STATUS }, "POST repository/message": { value: { message: "Add a script" } }, "POST repository/commit": { status: 202 } });
  await bar();
  press("Commit…");
  await settled();
  const field = root.querySelector<HTMLTextAreaElement>("textarea")!;
  assert.equal(field.value, "Add a script");
  await write("Add hello.sh\n\nA first one. ");
  press("Commit");
  await settled();
  assert.equal(asked.at(-1), `POST repository/commit {"message":"Add hello.sh\\n\\nA first one."}`);
  assert.equal(root.querySelector("dialog"), null);
});

test("late proposal does not replace a written message", async () => {
  let release = () => {};
  const after = new Promise<void>((resolve) => (release = resolve));
  serve({ "GET repository": { value: STATUS }, "POST repository/message": { value: { message: "proposed" }, after } });
  await bar();
  press("Commit…");
  await settled();
  assert.equal(asked.at(-1), "POST repository/message {}");
  await write("mine");
  release();
  await settled();
  assert.equal(root.querySelector("textarea")?.value, "mine");
});

test("failed proposal and failed commit state the reason and keep the message", async () => {
  serve({
    "GET repository": { value: STATUS },
    "POST repository/message": rejection(409, "budget", "the budget is spent"),
    "POST repository/commit": rejection(409, "no_git", "the image has no `git`"),
  });
  await bar();
  press("Commit…");
  await settled();
  assert.match(root.querySelector("[role=alert]")?.textContent ?? "", /budget is spent/);
  await write("mine");
  press("Commit");
  await settled();
  assert.match(root.querySelector("[role=alert]")?.textContent ?? "", /the image has no git/);
  press("Cancel");
  await settled();
  press("Commit…");
  await settled();
  assert.equal(root.querySelector<HTMLTextAreaElement>("textarea")?.value, "mine");
});

test("push states its result and reads the branch anew", async () => {
  serve({ "GET repository": { value: STATUS }, "POST repository/push": { value: { url: URL_OF_CODE, branch: "greenroom/01ab", commit: STATUS.head } } });
  await bar();
  press("Push…");
  await settled();
  press("Push");
  await settled();
  assert.deepEqual(asked.slice(1), ['POST repository/push {"branch":"greenroom/01ab","force":false}', "GET repository"]);
  assert.match(root.querySelector(".restored-note")?.textContent ?? "", /Pushed to the branch greenroom\/01ab of https:\/\/git\.example\/code\.git/);
});

test("push without credentials names the config key and the patch", async () => {
  serve({ "GET repository": { value: STATUS }, "POST repository/push": rejection(409, "no_credentials", "no credential for `git.example`; set `repositories.credentials`") });
  await bar();
  press("Push…");
  await settled();
  press("Push");
  await settled();
  assert.match(root.querySelector("[role=alert]")?.textContent ?? "", /set repositories\.credentials\. Or download the patch/);
});

test("branch with other commits is replaced on request, or pushed under another name", async () => {
  serve({ "GET repository": { value: STATUS }, "POST repository/push": rejection(409, "not_fast_forward", "`greenroom/01ab` has other commits") });
  await bar();
  press("Push…");
  await settled();
  press("Push");
  await settled();
  assert.match(root.querySelector("[role=alert]")?.textContent ?? "", /has other commits/);
  press("Replace the branch");
  await settled();
  assert.equal(asked.at(-1), 'POST repository/push {"branch":"greenroom/01ab","force":true}');
  await write("mine", "input");
  assert.doesNotMatch(root.textContent ?? "", /Replace the branch/);
  press("Push");
  await settled();
  assert.equal(asked.at(-1), 'POST repository/push {"branch":"mine","force":false}');
});

test("impossible push states the reason first", async () => {
  serve({ "GET repository": { value: { ...STATUS, push: { possible: false, reason: "no credential for `git.example`" } } } });
  await bar();
  press("Push…");
  await settled();
  assert.match(root.querySelector("[role=alert]")?.textContent ?? "", /no credential for git\.example/);
  assert.equal([...root.querySelectorAll("button")].find(({ textContent }) => textContent === "Push")?.disabled, true);
});

test("rows tell of a clone and a push", () => {
  const script = new FrameScript().addObservation("repository", "", { phase: "cloning", url: URL_OF_CODE });
  assert.deepEqual(rowsOf(script.play()), [`quiet: Cloning \`${URL_OF_CODE}\`…`]);
  script.addObservation("repository", "", { phase: "failed", url: URL_OF_CODE, detail: "no such repository" });
  const failed = `bad: Couldn't clone \`${URL_OF_CODE}\`. Send a message to try again. (no such repository)`;
  assert.deepEqual(rowsOf(script.play()), [failed]);
  script.addObservation("repository", "", { phase: "cloning", url: URL_OF_CODE });
  script.addObservation("repository", "", { phase: "cloned", url: URL_OF_CODE, commit: STATUS.head, branch: "greenroom/01ab" });
  script.addObservation("pushed", "", { url: URL_OF_CODE, branch: "fix", commit: STATUS.head });
  assert.deepEqual(rowsOf(script.play()), [
    failed,
    `quiet: Cloned \`${URL_OF_CODE}\` to the branch \`greenroom/01ab\``,
    `quiet: Pushed \`bbbbbbbb\` to the branch \`fix\` of \`${URL_OF_CODE}\``,
  ]);
});

test("form offers recent repositories and those of the sources", async () => {
  const recent = [{ url: URL_OF_CODE, ref: "main", used_at: "2026-01-01T00:00:00Z" }, { url: URL_OF_CODE, ref: null, used_at: "2026-01-01T00:00:00Z" }];
  const sources = [{ path: "/home/me/code", repositories: ["one", "two"] }];
  serve({ "GET repositories": { value: { recent, sources } } });
  assert.deepEqual(knownRepositories({ recent, sources }), [URL_OF_CODE, "/home/me/code/one", "/home/me/code/two"]);
  let choices: TaskChoices = {};
  function Form() {
    const [chosen, setChosen] = useState<TaskChoices>({});
    choices = chosen;
    return <RepositoryFields chosen={chosen} onChange={setChosen} />;
  }
  await renderText(<Form />);
  assert.equal(root.querySelectorAll("option").length, 3);
  await write(URL_OF_CODE, "[list]");
  assert.deepEqual(choices, { repo: URL_OF_CODE, ref: "main" });
  await write("", "[list]");
  await write("v1", "[placeholder='Default branch']");
  await write("/srv/other", "[list]");
  assert.deepEqual(choices, { repo: "/srv/other", ref: "v1" });
  root.querySelectorAll<HTMLButtonElement>(".recent-repositories button")[1]!.click();
  await settled();
  assert.deepEqual(choices, { repo: URL_OF_CODE, ref: undefined });
});

test("form takes any text if the known repositories do not arrive", async () => {
  serve({});
  const text = await renderText(<RepositoryFields chosen={{}} onChange={() => {}} />);
  assert.match(text, /Known repositories are missing: no GET repositories/);
  assert.ok(root.querySelector("[list]:not(:disabled)"));
});

test("session starts from the repository, and a ref alone is left out", async () => {
  serve({ "POST sessions": { status: 201, value: { id: "s1" } }, "GET sessions": { value: { items: [], total: 0 } } });
  await startWith({ current: null }, { task: "look", repo: URL_OF_CODE, ref: "main" }, []);
  await startWith({ current: null }, { task: "look", ref: "main" }, []);
  const bodies = asked.filter((one) => one.startsWith("POST")).map((one) => JSON.parse(one.slice("POST sessions ".length)) as object);
  assert.deepEqual(bodies, [{ task: "look", repo: URL_OF_CODE, ref: "main" }, { task: "look" }]);
});
