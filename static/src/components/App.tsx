// Whole page: the sidebar, and beside it the current page.

import { useEffect, useLayoutEffect } from "preact/hooks";
import { loadLazy } from "../loadLazy";
import { route } from "../route";
import { sessionDialog } from "../state/sessionDialog";
import { overlay } from "../state/keys";
import { watchSessions } from "../state/sessionList";
import { sidebarCovers, sidebarOpen } from "../state/sidebar";
import { toast } from "../state/toast";
import { signedOut } from "../wire/rest";
import { lazy, pageSkeleton } from "./lazy";
import { PlainPage } from "./PlainPage";
import { SessionPage } from "./SessionPage";
import { Sidebar } from "./Sidebar";
import { enterSidebar } from "./SidebarButton";

const Admin = lazy((later) => later.Admin, pageSkeleton);
const ApiDocs = lazy((later) => later.ApiDocs, pageSkeleton);
const Home = lazy((later) => later.Home, pageSkeleton);
const Recording = lazy((later) => later.Recording, pageSkeleton);
const Palette = lazy((later) => later.Palette);
const SessionQuestions = lazy((later) => later.SessionDialog);
const SignedOut = lazy((later) => later.SignedOut);
const Settings = lazy((later) => later.Settings);
const Shortcuts = lazy((later) => later.Shortcuts);
const Toast = lazy((later) => later.Toast);

export function App() {
  useEffect(watchSessions, []);
  useEffect(() => {
    void import("../background");
    // Loads the bundle early. An upgraded server no longer has this version's files.
    void loadLazy();
  }, []);
  const covered = sidebarCovers.value;
  useLayoutEffect(() => (covered ? enterSidebar() : undefined), [covered]);
  if (signedOut.value) return <SignedOut />;
  return (
    <div class={sidebarOpen.value ? "app sidebar-open" : "app"}>
      <Sidebar />
      <button
        type="button"
        class="veil"
        aria-label="Close the session list"
        hidden={!sidebarOpen.value}
        onClick={() => (sidebarOpen.value = false)}
      />
      <main class="main" inert={covered}>
        <CurrentPage />
      </main>
      {overlay.value === "palette" && <Palette />}
      {overlay.value === "settings" && <Settings />}
      {overlay.value === "shortcuts" && <Shortcuts />}
      {/* A screen reader announces what appears in a region that was there before. */}
      <div class="toasts" role="status">
        {toast.value && <Toast note={toast.value} />}
      </div>
      {sessionDialog.value && <SessionQuestions key={`${sessionDialog.value.action} ${sessionDialog.value.session.id}`} {...sessionDialog.value} />}
    </div>
  );
}

function CurrentPage() {
  const shown = route.value;
  switch (shown.page) {
    case "home":
      return <Home />;
    case "session":
      return <SessionPage key={shown.id} id={shown.id} />;
    case "recording":
      return <Recording key={shown.file} file={shown.file} />;
    case "admin":
      return <Admin />;
    case "docs":
      return <ApiDocs />;
    case "unknown":
      return (
        <PlainPage title="Page not found">
          <p>
            <a href="/sessions">Go to the sessions</a>
          </p>
        </PlainPage>
      );
  }
}
