// Start of a task: creates the session, uploads the files, sends the task.

import { newId } from "../id";
import { storeText } from "../storage";
import { navigate, route } from "../route";
import { createSession, sendMessage, type NewSession } from "../wire/lazyRest";
import { getSession, RestError } from "../wire/rest";
import { defaultModel } from "./defaultModel";
import { uploadAttachment } from "./uploadAttachment";
import { refreshSessions } from "./sessionList";
import * as written from "./taskDraft";
import { missingText, without, type MissingFiles } from "./taskDraft";

/** Choices of the user beside the task. */
export interface TaskChoices extends Pick<NewSession, "agent" | "model" | "effort" | "mode" | "analyzer" | "image" | "directory" | "repo" | "ref"> {
  /** Budget in USD as typed, which may not be a number yet. */
  budget?: string;
}

/**
 * Attempt to start a task, with an idempotency key. A retry after a lost answer starts no second
 * session.
 */
export interface StartAttempt {
  requestJson: string;
  /** Task text. `requestJson` lacks the task if files are uploaded first. */
  task: string;
  key: string;
  /** Session created for the files. Its uploads exist nowhere else. */
  session?: string;
  /** Paths of uploaded files, which are not sent again. */
  uploaded: Map<File, string>;
  /** Paths from before a page reload. The files themselves are gone. */
  attachments?: string[];
  /** Original names of those files. */
  names?: string[];
  /** Message with the task, if the session was created for its files first. */
  message?: { said: string; key: string };
  /** Original names of the files in that message. */
  brought?: string[];
}

/** Starts the written task. */
export async function startTask(): Promise<void> {
  const { task, files, choices, visits, problem, starting } = written;
  const sent = { task: task.peek(), files: files.peek(), visit: visits.peek() };
  problem.value = null;
  try {
    const chosen = choices.peek();
    const model = chosen.model ?? defaultModel.peek();
    const id = await startWith(written.attempt, { ...chosen, ...(model && { model }), task: sent.task.trim() }, sent.files);
    const isAwaited = sent.visit === visits.peek() || sent.task === task.peek();
    clearStarted(sent);
    if (isAwaited && route.peek().page === "home") navigate(`/sessions/${id}`);
  } catch (error) {
    if (error instanceof FilesLostError) written.missing.value = error.lost;
    else problem.value = (error as Error).message;
  } finally {
    starting.value = false;
  }
}

/** Clears the started task, except for later changes. */
function clearStarted(sent: { task: string; files: readonly File[] }): void {
  const { task, files, choices, attempt } = written;
  attempt.current = null;
  files.value = files.peek().filter((file) => !sent.files.includes(file));
  if (localStorage.getItem(written.TASK) === sent.task) storeText(written.TASK, "");
  if (task.peek() !== sent.task) return;
  task.value = "";
  choices.value = {};
}

/**
 * Starts a task and returns the session id. `last` is set before sending, because a reload keeps
 * nothing else.
 */
export async function startWith(last: { current: StartAttempt | null }, chosen: TaskChoices & { task: string }, files: readonly File[]): Promise<string> {
  const { task, budget, ref, ...options } = chosen;
  // A ref alone names nothing.
  const rest = { ...options, ...(options.repo && ref && { ref }), budget_usd: parseBudget(budget) };
  // A session created for files is reused after a failed upload, even if the task or the files
  // changed.
  const reusesSession = last.current?.requestJson === JSON.stringify(rest);
  const requestJson = JSON.stringify(files.length > 0 || reusesSession ? rest : { ...rest, task });
  const before = last.current?.requestJson === requestJson ? last.current : null;
  const missingNames = before ? [] : without(earlierNames(last.current), files.map(({ name }) => name));
  const attempt: StartAttempt = Object.assign(before ?? { requestJson, key: newId(), uploaded: new Map() }, { task });
  last.current = attempt;
  if (missingNames.length > 0) throw new FilesLostError(missingNames, "uploaded to a session with other options");
  if (files.length === 0 && !reusesSession) {
    const { id } = await createSession({ ...rest, task }, attempt.key);
    void refreshSessions();
    return id;
  }
  try {
    return await startWithFiles(last, attempt, rest, files);
  } catch (error) {
    const current = last.current ?? attempt;
    if (!(await isSessionLost(current.session, error))) throw error;
    return await startWithFiles(last, replaceAttempt(last, current, { key: newId() }), rest, files);
  }
}

/** Creates the session, uploads the files and sends the task. Skips completed steps. */
async function startWithFiles(last: { current: StartAttempt | null }, begun: StartAttempt, rest: NewSession, files: readonly File[]): Promise<string> {
  const { task, key } = begun;
  const { id } = await createSession(rest, key);
  // The key of a deleted session creates a new one.
  const attempt = (begun.session ?? id) === id ? begun : replaceAttempt(last, begun, { key, session: id });
  last.current = Object.assign(attempt, { session: id });
  const attachments = [...(attempt.attachments ?? [])];
  for (const file of files) {
    const path = attempt.uploaded.get(file) ?? (await uploadAttachment(id, file, rest.model, () => {}, new AbortController().signal)).path;
    attempt.uploaded.set(file, path);
    attachments.push(path);
  }
  const fingerprint = JSON.stringify([task, attachments]);
  const brought = [...earlierNames(attempt), ...files.map(({ name }) => name)];
  const message = attempt.message?.said === fingerprint ? attempt.message : { said: fingerprint, key: newId() };
  last.current = Object.assign(attempt, { message, brought });
  await sendMessage(id, { content: task, attachments }, message.key);
  void refreshSessions();
  return id;
}

/**
 * Reports if the session ended or was deleted elsewhere before its task. A 404 may concern only its
 * sandbox.
 */
async function isSessionLost(session: string | undefined, error: unknown): Promise<boolean> {
  if (session === undefined || !(error instanceof RestError)) return false;
  if (error.code === "ended") return true;
  if (!error.isNotFound) return false;
  return getSession(session).then(
    ({ state }) => state === "ended",
    (why: unknown) => why instanceof RestError && why.isNotFound,
  );
}

/**
 * Returns a new attempt after the loss of a session. Files uploaded by an earlier page exist only
 * with the user.
 */
function replaceAttempt(last: { current: StartAttempt | null }, lost: StartAttempt, made: { key: string; session?: string }): StartAttempt {
  const attempt: StartAttempt = { requestJson: lost.requestJson, task: lost.task, uploaded: new Map(), ...made };
  last.current = attempt;
  const missingNames = earlierNames(lost);
  if (missingNames.length > 0) throw new FilesLostError(missingNames, "their session is gone");
  return attempt;
}

/** Returns the names of files uploaded by an earlier page. */
function earlierNames(attempt: StartAttempt | null): string[] {
  return attempt?.names ?? (attempt?.attachments ?? []).map((path) => path.slice(path.lastIndexOf("/") + 1));
}

/** Error of a start without its files. No session was started. */
class FilesLostError extends Error {
  readonly lost: MissingFiles;

  constructor(names: readonly string[], reason: string) {
    super(missingText({ names, reason }));
    this.lost = { names, reason };
  }
}

function parseBudget(budget = ""): number | undefined {
  if (budget.trim() === "") return undefined;
  const usd = Number(budget);
  if (usd > 0 && Number.isFinite(usd)) return usd;
  throw new Error(`Budget \`${budget}\` must be above zero. Enter an amount or leave it empty.`);
}
