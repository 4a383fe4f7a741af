// Repository of a simulated session. The first push is rejected, the branch `private` always.

const commit = (n, subject) => ({ id: String(n).repeat(40), subject, author: "Ada Lovelace", at: new Date().toISOString() });
const error = (status, code, message) => ({ status, value: { error: { code, message } } });

export class ScriptedRepository {
  commits = [commit(2, "Greet by name"), commit(1, "Add a script that prints hello")];
  pushed = null;
  pushes = 0;

  static offered() {
    const used_at = new Date().toISOString();
    const recent = [{ url: "https://git.example/team/code.git", ref: "main", used_at }, { url: "/home/me/code/site", ref: null, used_at }];
    return { recent, sources: [{ path: "/home/me/code", repositories: ["site", "tools"] }] };
  }

  constructor(session, url, ref) {
    this.session = session;
    this.branch = `greenroom/${session.id.slice(-6).toLowerCase()}`;
    const fails = url.includes("missing");
    session.repository = { url, ref: ref ?? null, commit: fails ? null : commit(0, "").id, branch: fails ? null : this.branch };
    session.addObservation("server", "repository", "", { phase: "cloning", url, ref });
    const outcome = fails ? { phase: "failed", detail: "no repository has this address" } : { phase: "cloned", commit: commit(0, "").id, branch: this.branch };
    session.addObservation("server", "repository", "", { url, ref, ...outcome });
  }

  answer(what, body) {
    const { repository } = this.session;
    switch (what) {
      case undefined:
        return { status: 200, value: { ...repository, base_commit: repository.commit, branch: this.branch, head: this.commits[0].id, commits: this.commits, pushed: this.pushed, push: { possible: true, reason: null } } };
      case "message":
        return { status: 200, value: { message: "Greet by name\n\nThe script takes a name and greets the world without one." } };
      case "commit":
        this.commits.unshift(commit(this.commits.length + 1, body.message.split("\n", 1)[0]));
        return { status: 202, value: {} };
      case "push":
        return this.push(body.branch ?? this.branch);
    }
  }

  push(branch) {
    this.pushes += 1;
    if (branch === "private") return error(409, "no_credentials", "no credential for `git.example`; set `[[repositories.credentials]]` in the config");
    if (this.pushes === 1) return error(409, "not_fast_forward", `\`${branch}\` has other commits in the repository`);
    this.pushed = { branch, commit: this.commits[0].id };
    const value = { url: this.session.repository.url, ...this.pushed };
    this.session.addObservation("server", "pushed", "", value);
    return { status: 200, value };
  }
}
