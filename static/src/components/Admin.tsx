// The server's live actors, as a tree by session.

import { useEffect, useState } from "preact/hooks";
import { now } from "../clock";
import { relativeTime } from "../format";
import { actorTree, type Branch } from "../state/actors";
import { listActors, type Actor } from "../wire/rest";
import { Problem } from "./Problem";
import { SidebarButton } from "./SidebarButton";

const REFRESH_MS = 2000;

export function Admin() {
  const [actors, setActors] = useState<Actor[] | null>(null);
  const [problem, setProblem] = useState<string | null>(null);

  const refresh = async () => {
    try {
      setActors((await listActors()).items);
      setProblem(null);
    } catch (error) {
      setProblem((error as Error).message);
    }
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
        <h1>Actors</h1>
        {actors && <span class="muted">{actors.length} alive</span>}
        <a href="/api/docs">REST API</a>
      </header>
      <div class="admin-body">
        {problem && <Problem text={problem} onRetry={() => void refresh()} />}
        {actors && <Table branches={actorTree(actors)} />}
        {!actors && !problem && <div class="skeleton tall" role="status" aria-label="Loading" />}
      </div>
    </div>
  );
}

function Table({ branches }: { branches: Branch[] }) {
  if (branches.length === 0) return <p class="muted">No actor is alive.</p>;
  return (
    <table>
      <thead>
        <tr>
          <th>Actor</th>
          <th>State</th>
          <th class="number">Age</th>
          <th class="number">Last active</th>
          <th class="number">Handled</th>
          <th class="number">Queued</th>
        </tr>
      </thead>
      <tbody>
        {branches.map(({ actor, depth }) => (
          <tr key={`${actor.kind}/${actor.id}`}>
            <td>
              <span class={`actor depth-${depth}`}>
                <strong>{actor.kind.replaceAll("_", " ")}</strong>
                {actor.kind === "session" && actor.session ? (
                  <a href={`/sessions/${actor.session}`}>{actor.id}</a>
                ) : (
                  <code>{actor.id}</code>
                )}
              </span>
            </td>
            <td>{actor.state ?? ""}</td>
            <td class="number">{relativeTime(actor.since, now.value)}</td>
            <td class="number">{relativeTime(actor.last_active, now.value)}</td>
            <td class="number">{actor.handled.toLocaleString("en")}</td>
            <td class="number">{actor.queued ?? "–"}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
