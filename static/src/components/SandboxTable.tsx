// Table of sandboxes with their resource use.

import { bytes } from "../format";
import { sessions } from "../state/sessionList";
import type { SandboxLoad } from "../state/sandboxLoad";

export function SandboxTable({ sandboxes }: { sandboxes: readonly SandboxLoad[] }) {
  if (sandboxes.length === 0) return <p class="muted">No sandboxes. Start a task to create one.</p>;
  return (
    <table>
      <thead>
        <tr>
          <th>Session</th>
          <th>State</th>
          <th>Driver</th>
          <th class="number">Memory</th>
          <th class="number">CPU</th>
          <th class="number">Processes</th>
        </tr>
      </thead>
      <tbody>
        {sandboxes.map(({ session, state, driver, memory_bytes, processes, cpu }) => (
          <tr key={session}>
            <td>
              <a href={`/sessions/${session}`}>{titleOf(session)}</a>
            </td>
            <td>{state}</td>
            <td>{driver}</td>
            <td class="number">{memory_bytes === null ? "–" : bytes(memory_bytes)}</td>
            <td class="number">{cpu === null ? "–" : `${Math.round(cpu * 100)} %`}</td>
            <td class="number">{processes ?? "–"}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function titleOf(session: string): string {
  return sessions.value?.find(({ id }) => id === session)?.title || session;
}
