// How a session begins: it is made, its files are brought, its task is given.

import { newId } from "../id";
import { createSession, sendMessage, type NewSession } from "../wire/rest";
import { refreshSessions } from "./list";

const DRAFT = "greenroom.draft.new";

/** The task that is being written, kept over a reload. */
export const draft = {
  read: (): string => localStorage.getItem(DRAFT) ?? "",
  keep: (text: string): void => (text ? localStorage.setItem(DRAFT, text) : localStorage.removeItem(DRAFT)),
};

/** One key for one wish: trying again after a lost answer does not start it twice. */
export interface Attempt {
  wish: string;
  key: string;
}

/** Returns the session's id. */
export async function begin(last: { current: Attempt | null }, wanted: NewSession & { task: string }, files: readonly File[]): Promise<string> {
  const wish = JSON.stringify([wanted, files.map(({ name, size }) => [name, size])]);
  if (last.current?.wish !== wish) last.current = { wish, key: newId() };
  const { key } = last.current;
  if (files.length === 0) {
    const { id } = await createSession(wanted, key);
    void refreshSessions();
    return id;
  }
  const { task, ...rest } = wanted;
  const { id } = await createSession({ ...rest, title: task.split("\n", 1)[0]?.slice(0, 80) }, key);
  const { uploadFile } = await import("../later");
  const attachments: string[] = [];
  for (const file of files) attachments.push(await uploadFile(id, file, () => {}, new AbortController().signal));
  await sendMessage(id, { content: task, attachments }, `${key}-task`);
  void refreshSessions();
  return id;
}
