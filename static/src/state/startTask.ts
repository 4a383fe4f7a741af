// How a session begins: it is made, its files are brought, its task is given.

import { newId } from "../id";
import { keep } from "../keep";
import { navigate, route } from "../route";
import { createSession, sendMessage, type NewSession } from "../wire/manage";
import { getSession, RequestError } from "../wire/rest";
import { uploadFile } from "../wire/upload";
import { refreshSessions } from "./list";
import * as written from "./task";
import { lostText, without, type Lost } from "./task";

/** What a person chose beside the task. */
export interface Chosen extends Pick<NewSession, "agent" | "model" | "image" | "directory"> {
  /** In USD, as it is written: on the way to a number it is often none. */
  budget?: string;
}

/** One key for one wish: trying again after a lost answer does not start it twice. */
export interface Attempt {
  wish: string;
  /** What it is to do: its wish does not say where it brings files. */
  task: string;
  key: string;
  /** The session that was made for its files: what was brought to it is nowhere else. */
  session?: string;
  /** Where the files lie that are there already: they need not be sent again. */
  uploaded: Map<File, string>;
  /** Those that its message named before the page was loaded again: the files themselves are gone then. */
  attachments?: string[];
  /** By what names their person knows those. */
  names?: string[];
  /** The message that gives the task, where the session was made for its files before it. */
  message?: { said: string; key: string };
  /** By what names their person knows the files that it names. */
  brought?: string[];
}

/** Starts the task that is written. */
export async function begin(): Promise<void> {
  const { task, files, chosen, visits, problem, starting } = written;
  const sent = { task: task.peek(), files: files.peek(), visit: visits.peek() };
  problem.value = null;
  try {
    const id = await beginWith(written.attempt, { ...chosen.peek(), task: sent.task.trim() }, sent.files);
    const isAwaited = sent.visit === visits.peek() || sent.task === task.peek();
    forget(sent);
    if (isAwaited && route.peek().page === "home") navigate(`/sessions/${id}`);
  } catch (error) {
    if (error instanceof FilesLost) written.lost.value = error.lost;
    else problem.value = (error as Error).message;
  } finally {
    starting.value = false;
  }
}

/** Nothing that was written since. */
function forget(sent: { task: string; files: readonly File[] }): void {
  const { task, files, chosen, attempt } = written;
  attempt.current = null;
  files.value = files.peek().filter((file) => !sent.files.includes(file));
  if (localStorage.getItem(written.TASK) === sent.task) keep(written.TASK, "");
  if (task.peek() !== sent.task) return;
  task.value = "";
  chosen.value = {};
}

/** Returns the session's id. What `last` holds is set before anything is sent: it may be all that is left after a reload. */
export async function beginWith(last: { current: Attempt | null }, chosen: Chosen & { task: string }, files: readonly File[]): Promise<string> {
  const { task, budget, ...options } = chosen;
  const rest = { ...options, budget_usd: amountOf(budget) };
  // A session that was made for its files is gone on with, though its task or its files were changed after one could not be sent.
  const waits = last.current?.wish === JSON.stringify(rest);
  const wish = JSON.stringify(files.length > 0 || waits ? rest : { ...rest, task });
  const before = last.current?.wish === wish ? last.current : null;
  const left = before ? [] : without(namesOf(last.current), files.map(({ name }) => name));
  const attempt: Attempt = Object.assign(before ?? { wish, key: newId(), uploaded: new Map() }, { task });
  last.current = attempt;
  if (left.length > 0) throw new FilesLost(left, "they lie in a session with other options");
  if (files.length === 0 && !waits) {
    const { id } = await createSession({ ...rest, task }, attempt.key);
    void refreshSessions();
    return id;
  }
  try {
    return await beginWithFiles(last, attempt, rest, files);
  } catch (error) {
    const reached = last.current ?? attempt;
    if (!(await isLost(reached.session, error))) throw error;
    return await beginWithFiles(last, anew(last, reached, { key: newId() }), rest, files);
  }
}

/** Makes the session, brings the files, gives the task; of that what is done already is not done again. */
async function beginWithFiles(last: { current: Attempt | null }, begun: Attempt, rest: NewSession, files: readonly File[]): Promise<string> {
  const { task, key } = begun;
  const { id } = await createSession({ ...rest, title: task.split("\n", 1)[0]?.slice(0, 80) }, key);
  // Once a session is deleted its key makes another one.
  const attempt = (begun.session ?? id) === id ? begun : anew(last, begun, { key, session: id });
  last.current = Object.assign(attempt, { session: id });
  const attachments = [...(attempt.attachments ?? [])];
  for (const file of files) {
    const path = attempt.uploaded.get(file) ?? (await uploadFile(id, file, () => {}, new AbortController().signal));
    attempt.uploaded.set(file, path);
    attachments.push(path);
  }
  const said = JSON.stringify([task, attachments]);
  const brought = [...namesOf(attempt), ...files.map(({ name }) => name)];
  const message = attempt.message?.said === said ? attempt.message : { said, key: newId() };
  last.current = Object.assign(attempt, { message, brought });
  await sendMessage(id, { content: task, attachments }, message.key);
  void refreshSessions();
  return id;
}

/** Whether a session ended or was deleted elsewhere before it had its task. What was not found may be its sandbox alone. */
async function isLost(session: string | undefined, error: unknown): Promise<boolean> {
  if (session === undefined || !(error instanceof RequestError)) return false;
  if (error.code === "ended") return true;
  if (!error.isNotFound) return false;
  return getSession(session).then(
    ({ state }) => state === "ended",
    (why: unknown) => why instanceof RequestError && why.isNotFound,
  );
}

/** The same attempt where its session is lost, and all that was brought there. What a page before brought the person alone has. */
function anew(last: { current: Attempt | null }, lost: Attempt, made: { key: string; session?: string }): Attempt {
  const attempt: Attempt = { wish: lost.wish, task: lost.task, uploaded: new Map(), ...made };
  last.current = attempt;
  const gone = namesOf(lost);
  if (gone.length > 0) throw new FilesLost(gone, "the session that had them is gone");
  return attempt;
}

/** What a page before this one has brought. */
function namesOf(attempt: Attempt | null): string[] {
  return attempt?.names ?? (attempt?.attachments ?? []).map((path) => path.slice(path.lastIndexOf("/") + 1));
}

/** Nothing was begun without them. */
class FilesLost extends Error {
  readonly lost: Lost;

  constructor(names: readonly string[], why: string) {
    super(lostText({ names, why }));
    this.lost = { names, why };
  }
}

function amountOf(budget = ""): number | undefined {
  if (budget.trim() === "") return undefined;
  const usd = Number(budget);
  if (usd > 0 && Number.isFinite(usd)) return usd;
  throw new Error(`The budget \`${budget}\` is no amount above zero. Write it like 0.50, or leave it empty.`);
}
