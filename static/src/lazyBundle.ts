// What is not there at first sight, in one file that comes on demand: many small ones would weigh more.

// Always there before this is, and imported so that the bundler makes one file of it, in place of one for every set of entries
// that share something.
import "./components/App";
export { About } from "./components/About";
export { Admin } from "./components/Admin";
export { ApiDocs } from "./components/ApiDocs";
export { Attachments } from "./components/Attachments";
export { ConfirmDock } from "./components/ConfirmDock";
export { Divider } from "./components/Divider";
export { ModelMenu } from "./components/ModelMenu";
export { Outbox } from "./components/Outbox";
export { Palette } from "./components/Palette";
export { Queue } from "./components/Queue";
export { Recording } from "./components/Recording";
export { SessionActs } from "./components/SessionActs";
export { SessionQuestions } from "./components/SessionQuestions";
export { Settings } from "./components/Settings";
export { Shortcuts } from "./components/Shortcuts";
export { SignedOut } from "./components/SignedOut";
export { TaskFiles } from "./components/TaskFiles";
export { TaskOptions } from "./components/TaskOptions";
export { Workspace } from "./components/Workspace";
export { begin } from "./state/begin";
export { inOrder, readPast } from "./state/past";
export { uploadFile } from "./wire/upload";
