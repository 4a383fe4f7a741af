// The server from inside: its live actors as a tree by session, and its sandboxes with what they take.

import { useEffect, useState } from "preact/hooks";
import { plural } from "../format";
import { actorTree } from "../state/actors";
import { withLoad, type Loaded } from "../state/sandboxes";
import { listActors, listSandboxes, type Actor } from "../wire/manage";
import { ActorTable } from "./ActorTable";
import { Problem } from "./Problem";
import { SandboxTable } from "./SandboxTable";
import { SidebarButton } from "./SidebarButton";

const REFRESH_MS = 2000;

export function Admin() {
  const [actors, setActors] = useState<Actor[] | null>(null);
  const [sandboxes, setSandboxes] = useState<Loaded[] | null>(null);
  const [problems, setProblems] = useState<string[]>([]);

  const refresh = async () => {
    // Each for itself: an engine that does not answer hides the sandboxes, not the actors.
    const [living, boxes] = await Promise.allSettled([listActors(), listSandboxes()]);
    const at = Date.now();
    if (living.status === "fulfilled") setActors(living.value.items);
    if (boxes.status === "fulfilled") setSandboxes((before) => withLoad(boxes.value.items, at, before ?? []));
    const failed = [living, boxes].flatMap((one) => (one.status === "rejected" ? [(one.reason as Error).message] : []));
    setProblems([...new Set(failed)]);
  };

  useEffect(() => {
    void refresh();
    const timer = setInterval(() => !document.hidden && void refresh(), REFRESH_MS);
    return () => clearInterval(timer);
  }, []);

  return (
    <div class="admin">
      <header class="session-header">
        <SidebarButton />
        <h1>Actors and sandboxes</h1>
        <a href="/api/docs">REST API</a>
      </header>
      <div class="admin-body" tabIndex={0} role="region" aria-label="Actors and sandboxes">
        {problems.map((problem) => (
          <Problem key={problem} text={problem} onRetry={() => void refresh()} />
        ))}
        {actors && (
          <section>
            <h2>
              Actors <span class="muted">{plural(actors.length, "actor")} alive</span>
            </h2>
            <ActorTable branches={actorTree(actors)} />
          </section>
        )}
        {sandboxes && (
          <section>
            <h2>
              Sandboxes <span class="muted">{plural(sandboxes.length, "sandbox", "sandboxes")}</span>
            </h2>
            <SandboxTable sandboxes={sandboxes} />
          </section>
        )}
        {!actors && problems.length === 0 && <div class="skeleton tall" role="status" aria-label="Loading" />}
      </div>
    </div>
  );
}
