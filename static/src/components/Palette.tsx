// Command palette: sessions and actions by search.

import { useMemo, useRef, useState } from "preact/hooks";
import { isComposing } from "../dom/ime";
import { navigate } from "../route";
import { sessionDialog, type SessionDialogRequest } from "../state/sessionDialog";
import { currentSession, currentState, toggleWorkspace } from "../state/currentSession";
import { matching, searchEntries, sessionEntries, type PaletteEntry } from "../state/paletteEntries";
import { MOD, overlay } from "../state/keys";
import { TABS } from "../state/layout";
import { newest, sessionOf, sessions, showArchived, toggleArchived } from "../state/sessionList";
import { searchInList, toggleSidebar } from "../state/sidebar";
import { canNotify, notificationsOn, toggleNotifications } from "../state/notificationSetting";
import { isResumable, isInterruptible, isWorking } from "../state/activity";
import { downloadUrl } from "../dom/download";
import { setTheme, THEMES } from "../theme";
import type { Session } from "../wire/frame";
import { exportAddress } from "../wire/lazyRest";
import { Dialog } from "./Dialog";

interface ShownEntry extends PaletteEntry {
  /** True if the entry is no longer available. */
  unavailable?: boolean;
}

export function Palette() {
  const [query, setQuery] = useState("");
  const [chosenId, choose] = useState<string | null>(null);
  const [staleCount, setStaleCount] = useState(0);
  const list = useRef<HTMLUListElement>(null);
  const shown = useRef<readonly ShownEntry[]>([]);
  const all = useMemo(allEntries, [newest.value, sessions.value, currentSession.value, currentState.value, staleCount]);
  const found = useMemo(() => keepOrder(shown.current, all, query), [all, query]);
  shown.current = found;
  const chosen = Math.max(0, found.findIndex(({ id }) => id === chosenId));

  const close = () => (overlay.value = null);
  const act = (entry: ShownEntry | undefined) => {
    if (!entry) return;
    // Looks the entry up again. The action may have become impossible since the search.
    const now = [...allEntries(), ...searchEntries(query, searchInList)].find(({ id }) => id === entry.id);
    if (!now) return setStaleCount(staleCount + 1);
    close();
    now.run();
  };
  const keyDown = (event: KeyboardEvent) => {
    if (isComposing(event)) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined) {
      event.preventDefault();
      const next = (chosen + step + found.length) % Math.max(1, found.length);
      choose(found[next]?.id ?? null);
      list.current?.querySelector(`#entry-${next}`)?.scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter") {
      event.preventDefault();
      act(found[chosen]);
    }
  };

  return (
    <Dialog title="Search sessions and actions" kind="palette" onClose={close}>
      <input
        class="palette-field"
        dir="auto"
        role="combobox"
        aria-label="Search sessions and actions"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={found.length > 0 ? `entry-${chosen}` : undefined}
        placeholder="Find a session or an action"
        autofocus
        value={query}
        onInput={(event) => {
          shown.current = [];
          choose(null);
          setQuery(event.currentTarget.value);
        }}
        onKeyDown={keyDown}
      />
      <ul class="palette-list" id="palette-list" role="listbox" aria-label="Results" ref={list}>
        {found.map((entry, index) => (
          <li
            key={entry.id}
            id={`entry-${index}`}
            role="option"
            aria-selected={index === chosen}
            aria-disabled={entry.unavailable}
            class={entry.unavailable ? "palette-entry muted" : "palette-entry"}
            onClick={() => act(entry)}
            onPointerMove={() => choose(entry.id)}
          >
            <span class="palette-text" dir="auto">{entry.text}</span>
            {entry.unavailable ? <span>Not available now</span> : entry.note && <span class="muted">{entry.note}</span>}
          </li>
        ))}
      </ul>
    </Dialog>
  );
}

/**
 * Keeps found entries in place, because the user may be about to press one. New ones follow below.
 */
function keepOrder(shown: readonly ShownEntry[], all: readonly PaletteEntry[], query: string): ShownEntry[] {
  const now = new Map(all.map((entry) => [entry.id, entry]));
  const places = new Set(shown.map(({ id }) => id));
  return [
    ...shown.map((entry) => now.get(entry.id) ?? { ...entry, unavailable: true }),
    ...[...matching(all, query), ...searchEntries(query, searchInList)].filter(({ id }) => !places.has(id)),
  ];
}

const allEntries = (): PaletteEntry[] => [...sessionEntries(knownSessions(), openSession), ...currentSessionEntries(), ...appEntries()];

/** Returns the newest sessions and all listed ones: older, searched, archived. */
function knownSessions(): Session[] {
  const listed = [...(newest.peek() ?? []), ...(sessions.peek() ?? [])];
  return [...new Map(listed.map((session) => [session.id, session])).values()];
}

const openSession = (id: string) => navigate(`/sessions/${id}`);

function currentSessionEntries(): PaletteEntry[] {
  const shown = currentSession.peek();
  if (!shown) return [];
  const { live, layout } = shown;
  const { agentState: state, connection } = live.state.peek();
  const entry = (text: string, run: () => void, note?: string): PaletteEntry => ({
    id: `${live.id} ${text}`,
    text,
    note,
    group: "This session",
    run,
  });
  const session = sessionOf(live.id) ?? live.state.peek().session;
  const dialogEntry = (text: string, action: SessionDialogRequest["action"]) => (session ? [entry(text, () => (sessionDialog.value = { session, action }))] : []);
  const tabs = TABS.map((tab) => entry(`Show ${tab}`, () => (layout.value = { ...layout.value, folded: null, tab }), "workspace"));
  if (connection.phase === "recorded") return [...tabs, entry("Toggle the workspace", toggleWorkspace)];
  return [
    ...tabs,
    entry("Toggle the workspace", toggleWorkspace, `${MOD} J`),
    ...(isInterruptible(live.state.peek()) ? [entry("Interrupt", () => live.interrupt(), "Esc")] : []),
    ...(isWorking(state) ? [entry("Pause", () => live.pause())] : []),
    ...(isResumable(live.state.peek()) ? [entry("Resume", () => live.resume())] : []),
    ...dialogEntry("Rename…", "rename"),
    ...dialogEntry(session?.archived ? "Unarchive" : "Archive", "archive"),
    entry("Export as Markdown", () => downloadUrl(exportAddress(live.id, "md"))),
    entry("Export as JSONL", () => downloadUrl(exportAddress(live.id, "jsonl"))),
    ...(state === "idle" ? [entry("Stop sandbox", () => live.stop(), "frees memory; a message starts it again")] : []),
    ...(state === "ended" ? [] : dialogEntry("End…", "end")),
    ...dialogEntry("Delete…", "purge"),
  ];
}

function appEntries(): PaletteEntry[] {
  const entry = (text: string, run: () => void, note?: string): PaletteEntry => ({ id: text, text, note, group: "Greenroom", run });
  return [
    entry("New session", () => navigate("/sessions"), `${MOD} Shift O`),
    entry("Toggle the session list", toggleSidebar, `${MOD} B`),
    entry(showArchived.peek() ? "Hide archived sessions" : "Show archived sessions", toggleArchived),
    entry("Open a recording", () => navigate("/sessions?replay")),
    entry("Actors and sandboxes", () => navigate("/admin")),
    entry("REST API", () => navigate("/api/docs")),
    ...THEMES.map((theme) => entry(`Colours: ${theme}`, () => setTheme(theme))),
    ...(canNotify ? [entry(notificationsOn.peek() ? "Turn notifications off" : "Turn notifications on", () => void toggleNotifications())] : []),
    entry("Settings", () => (overlay.value = "settings")),
    entry("Keyboard shortcuts", () => (overlay.value = "shortcuts"), "?"),
  ];
}
