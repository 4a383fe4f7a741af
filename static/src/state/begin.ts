// How a session begins: it is made, its files are brought, its task is given.

import { newId } from "../id";
import { createSession, sendMessage, type NewSession } from "../wire/rest";
import { uploadFile } from "../wire/upload";
import { refreshSessions } from "./list";

/** One key for one wish: trying again after a lost answer does not start it twice. */
export interface Attempt {
  wish: string;
  key: string;
  /** Where the files lie that are there already: they need not be sent again. */
  uploaded: Map<File, string>;
}

/** Returns the session's id. */
export async function begin(last: { current: Attempt | null }, wanted: NewSession & { task: string }, files: readonly File[]): Promise<string> {
  // Which files come with it may change when one of them cannot be sent: the session is there by then.
  const wish = JSON.stringify([wanted, files.length > 0]);
  if (last.current?.wish !== wish) last.current = { wish, key: newId(), uploaded: new Map() };
  const { key, uploaded } = last.current;
  if (files.length === 0) {
    const { id } = await createSession(wanted, key);
    void refreshSessions();
    return id;
  }
  const { task, ...rest } = wanted;
  const { id } = await createSession({ ...rest, title: task.split("\n", 1)[0]?.slice(0, 80) }, key);
  const attachments: string[] = [];
  for (const file of files) {
    const path = uploaded.get(file) ?? (await uploadFile(id, file, () => {}, new AbortController().signal));
    uploaded.set(file, path);
    attachments.push(path);
  }
  await sendMessage(id, { content: task, attachments }, `${key}-task`);
  void refreshSessions();
  return id;
}
