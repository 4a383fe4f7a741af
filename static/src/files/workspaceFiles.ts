// REST calls on the files of a session's workspace.

import { serverAddress } from "../basePath";
import { rawCall } from "../wire/rawCall";
import { call, RestError, sessionPath } from "../wire/rest";

export type FileKind = "file" | "directory" | "link" | "other";

/** Path of an entry, in the form that requests repeat. */
export interface WorkspacePath {
  /** Path inside the workspace. Empty: the workspace itself. */
  path: string;
  /** True if `path` is percent-encoded, because the name is not UTF-8. */
  encoded: boolean;
}

export interface FileEntry extends WorkspacePath {
  /** Last part of `path`. */
  name: string;
  kind: FileKind;
  /** Size of a regular file. 0 for other entries. */
  bytes: number;
  /** Time of the last change, RFC 3339. `null` if the server cannot write it so. */
  modified: string | null;
  executable: boolean;
  hidden: boolean;
  /** Tag of a regular file's content. `null` for other entries. */
  etag: string | null;
}

export interface FilePage {
  items: FileEntry[];
  next_cursor: string | null;
  /** True if all sessions of the server use this workspace. */
  shared?: boolean;
}

/** Part of a file. */
export interface FilePart {
  bytes: Uint8Array<ArrayBuffer>;
  /** Size of the whole file in bytes. */
  total: number;
  etag: string | null;
  /** Media type that the server found. */
  type: string;
}

export const WORKSPACE_ROOT: WorkspacePath = { path: "", encoded: false };

/** Key of an entry. A plain and an encoded path may have the same text. */
export const keyOfPath = ({ path, encoded }: WorkspacePath): string => (encoded ? `%${path}` : `/${path}`);

/** Returns the directory of an entry, in the form that a list of its parent has. */
export function parentOf({ path, encoded }: WorkspacePath): WorkspacePath {
  const parent = path.slice(0, Math.max(0, path.lastIndexOf("/")));
  return (encoded ? plainPath(parent) : undefined) ?? { path: parent, encoded: encoded && parent !== "" };
}

/** Returns the plain form of an encoded path. `undefined`: the path needs the encoding. */
function plainPath(path: string): WorkspacePath | undefined {
  try {
    const plain = decodeURIComponent(path);
    return /[\x00-\x1f\x7f-\x9f]/.test(plain) ? undefined : { path: plain, encoded: false };
  } catch {
    return undefined;
  }
}

/** Returns the path of a plain name in a directory. */
export function childOf({ path, encoded }: WorkspacePath, name: string): WorkspacePath {
  // The server encodes no more than these characters, so the paths of its lists are the same.
  const written = encoded ? name.replace(/[\x00-\x1f%\x7f-\u{10ffff}]/gu, encodeURIComponent) : name;
  return { path: path === "" ? written : `${path}/${written}`, encoded };
}

const filesPath = (session: string) => `${sessionPath(session)}/files`;

function query(fields: Record<string, string | undefined>): string {
  const given = Object.entries(fields).filter((field): field is [string, string] => field[1] !== undefined);
  return given.length === 0 ? "" : `?${new URLSearchParams(given)}`;
}

const encodedFlag = ({ encoded }: WorkspacePath) => (encoded ? "true" : undefined);

/** Returns the address of a file, for `GET`, `PUT` and `DELETE`. */
export function addressOfFile(session: string, file: WorkspacePath, more: Record<string, string> = {}): string {
  const path = file.path.split("/").map(encodeURIComponent).join("/");
  return serverAddress(`/api${filesPath(session)}/${path}${query({ encoded: encodedFlag(file), ...more })}`);
}

/** Returns the address of a directory as an archive. */
export const archiveAddress = (session: string, directory: WorkspacePath): string =>
  serverAddress(`/api${sessionPath(session)}/archive${query({ path: directory.path || undefined, encoded: encodedFlag(directory), format: "zip" })}`);

export interface ListRequest {
  directory: WorkspacePath;
  cursor: string | null;
  limit: number;
  /** Part of a name, or a glob. Searches all directories below. */
  search?: string | undefined;
  signal?: AbortSignal;
}

/** Lists a directory, or searches below it. */
export function listFiles(session: string, { directory, cursor, limit, search, signal }: ListRequest): Promise<FilePage> {
  const fields = {
    path: directory.path || undefined,
    encoded: encodedFlag(directory),
    cursor: cursor ?? undefined,
    limit: String(limit),
    q: search,
    recursive: search === undefined ? undefined : "true",
  };
  return call("GET", `${filesPath(session)}${query(fields)}`, signal ? { signal } : {});
}

interface ReadRequest {
  from: number;
  /** Largest number of bytes to read. */
  length: number;
  /** Tag that the file must still have. Another content fails with status 412. */
  etag?: string | null;
  signal?: AbortSignal;
}

/** Reads a part of a file. An empty file has no parts, so it is read as a whole. */
export async function readPart(session: string, file: WorkspacePath, { from, length, etag, signal }: ReadRequest): Promise<FilePart> {
  const headers: Record<string, string> = { Range: `bytes=${from}-${from + length - 1}`, ...(etag && { "If-Match": etag }) };
  try {
    return await partOf(await rawCall(addressOfFile(session, file), { method: "GET", headers, signal }));
  } catch (error) {
    if (!(error instanceof RestError) || error.status !== 416 || from > 0) throw error;
    return partOf(await rawCall(addressOfFile(session, file), { method: "GET", signal }));
  }
}

async function partOf(response: Response): Promise<FilePart> {
  const bytes = new Uint8Array(await response.arrayBuffer());
  const total = /\/(\d+)$/.exec(response.headers.get("Content-Range") ?? "")?.[1];
  const type = response.headers.get("Content-Type") ?? "";
  return { bytes, total: total === undefined ? bytes.length : Number(total), etag: response.headers.get("ETag"), type };
}

/** Reads a whole file. */
export async function readWhole(session: string, file: WorkspacePath, signal?: AbortSignal): Promise<Blob> {
  return (await rawCall(addressOfFile(session, file), { method: "GET", signal })).blob();
}

/**
 * Saves a text and returns the new tag. `etag`: tag that the file must still have. `null`: the file
 * must not exist. Otherwise the call fails with status 412.
 */
export async function saveText(session: string, file: WorkspacePath, text: string, etag: string | null): Promise<string | null> {
  const condition: Record<string, string> = etag === null ? { "If-None-Match": "*" } : { "If-Match": etag };
  const headers = { "Content-Type": "application/octet-stream", ...condition };
  const response = await rawCall(addressOfFile(session, file), { method: "PUT", headers, body: text });
  return response.headers.get("ETag");
}

/** Deletes an entry. A directory goes with its content. */
export async function deleteFile(session: string, entry: FileEntry): Promise<void> {
  const more: Record<string, string> = entry.kind === "directory" ? { recursive: "true" } : {};
  await rawCall(addressOfFile(session, entry, more), { method: "DELETE", headers: { "Content-Type": "application/json" } });
}

/** Moves or renames an entry. An existing target stays, and the call fails. */
export const moveFile = (session: string, from: WorkspacePath, to: WorkspacePath): Promise<void> =>
  call("POST", `${filesPath(session)}:move`, {
    body: { from: from.path, to: to.path, from_encoded: from.encoded, to_encoded: to.encoded },
  });

/** Creates a directory. */
export const makeDirectory = (session: string, { path, encoded }: WorkspacePath): Promise<void> =>
  call("POST", `${filesPath(session)}:mkdir`, { body: { path, encoded } });
