// Live actors as a tree: directory, sessions, and the actors of each session. Server-wide actors
// come last.

import type { ActorRow } from "../wire/lazyRest";

export interface ActorTreeRow {
  actor: ActorRow;
  depth: 0 | 1 | 2;
}

export function actorTree(actors: readonly ActorRow[]): ActorTreeRow[] {
  const byAge = [...actors].sort((a, b) => a.since.localeCompare(b.since) || a.id.localeCompare(b.id, undefined, { numeric: true }));
  const sessions = byAge.filter((actor) => actor.kind === "session");
  const alive = new Set(sessions.map(sessionOf));
  const top = byAge.filter((actor) => actor.kind !== "session" && !(actor.session && alive.has(actor.session)));
  const below = sessions.flatMap((session): ActorTreeRow[] => [
    { actor: session, depth: 1 },
    ...byAge
      .filter((actor) => actor.kind !== "session" && actor.session === sessionOf(session))
      .map((actor): ActorTreeRow => ({ actor, depth: 2 })),
  ]);
  const [directories, others] = [top.filter(isDirectory), top.filter((actor) => !isDirectory(actor))];
  return [...directories.map(atTop), ...below, ...others.map(atTop)];
}

const isDirectory = (actor: ActorRow) => actor.kind === "directory";
const atTop = (actor: ActorRow): ActorTreeRow => ({ actor, depth: 0 });

function sessionOf(session: ActorRow): string {
  return session.session ?? session.id;
}
