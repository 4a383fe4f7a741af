// Live actors as a tree: the directory, below it sessions, below each what serves it; then what serves the server.

import type { Actor } from "../wire/manage";

export interface Branch {
  actor: Actor;
  depth: 0 | 1 | 2;
}

export function actorTree(actors: readonly Actor[]): Branch[] {
  const byAge = [...actors].sort((a, b) => a.since.localeCompare(b.since) || a.id.localeCompare(b.id, undefined, { numeric: true }));
  const sessions = byAge.filter((actor) => actor.kind === "session");
  const alive = new Set(sessions.map(sessionOf));
  const top = byAge.filter((actor) => actor.kind !== "session" && !(actor.session && alive.has(actor.session)));
  const below = sessions.flatMap((session): Branch[] => [
    { actor: session, depth: 1 },
    ...byAge
      .filter((actor) => actor.kind !== "session" && actor.session === sessionOf(session))
      .map((actor): Branch => ({ actor, depth: 2 })),
  ]);
  const [directories, others] = [top.filter(isDirectory), top.filter((actor) => !isDirectory(actor))];
  return [...directories.map(atTop), ...below, ...others.map(atTop)];
}

const isDirectory = (actor: Actor) => actor.kind === "directory";
const atTop = (actor: Actor): Branch => ({ actor, depth: 0 });

function sessionOf(session: Actor): string {
  return session.session ?? session.id;
}
