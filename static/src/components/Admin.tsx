// Admin page: live actors as a tree, and sandboxes with their resource use.

import { useEffect, useState } from "preact/hooks";
import { plural } from "../format";
import { actorTree } from "../state/actorTree";
import { withLoad, type SandboxLoad } from "../state/sandboxLoad";
import { listActors, listSandboxes, type ActorRow } from "../wire/lazyRest";
import { ActorTable } from "./ActorTable";
import { ErrorNotice } from "./ErrorNotice";
import { SandboxTable } from "./SandboxTable";
import { SidebarButton } from "./SidebarButton";

const REFRESH_MS = 2000;

export function Admin() {
  const [actors, setActors] = useState<ActorRow[] | null>(null);
  const [sandboxes, setSandboxes] = useState<SandboxLoad[] | null>(null);
  const [problems, setProblems] = useState<string[]>([]);

  const refresh = async () => {
    // Independent requests: a silent engine hides the sandboxes, not the actors.
    const [actorsResult, sandboxesResult] = await Promise.allSettled([listActors(), listSandboxes()]);
    const at = Date.now();
    if (actorsResult.status === "fulfilled") setActors(actorsResult.value.items);
    if (sandboxesResult.status === "fulfilled") setSandboxes((before) => withLoad(sandboxesResult.value.items, at, before ?? []));
    const failed = [actorsResult, sandboxesResult].flatMap((one) => (one.status === "rejected" ? [(one.reason as Error).message] : []));
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
          <ErrorNotice key={problem} text={problem} onRetry={() => void refresh()} />
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
