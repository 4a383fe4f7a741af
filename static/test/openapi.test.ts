import assert from "node:assert/strict";
import { test } from "node:test";
import { apiGroups, typeName, type OpenApiDocument } from "../src/state/openapi";

const api: OpenApiDocument = {
  paths: {
    "/api/things": {
      post: {
        tags: ["things"],
        summary: "Make one.",
        parameters: [{ name: "Idempotency-Key", in: "header", schema: { type: ["string", "null"] } }],
        requestBody: { content: { "application/json": { schema: { $ref: "#/components/schemas/NewThing" } } } },
        responses: {
          "201": { description: "made", content: { "application/json": { schema: { $ref: "#/x/Thing" } } } },
          "401": { $ref: "#/components/responses/Unauthorized" },
        },
      },
      get: { tags: ["things"], responses: { "200": {} } },
    },
    "/healthz": { get: {} },
    "/api/sessions": { get: { tags: ["sessions"] } },
    "/api/things/{id}": {
      get: { tags: ["things"], parameters: [{ name: "id", in: "path", required: true }] },
      put: { tags: ["things"], requestBody: { content: { "image/png": { schema: { type: "string" } } } } },
    },
  },
  components: {
    schemas: {
      NewThing: {
        properties: { title: { type: "string", description: "What it is called." }, size: { type: ["integer", "null"] } },
        required: ["title"],
      },
    },
  },
};

const SERVER = "https://green.test/base";

test("operations are grouped by tag in the usual order of methods", () => {
  const told = apiGroups(api, SERVER).map(({ name, operations }) => [name, operations.map((o) => `${o.method} ${o.path}`)]);
  assert.deepEqual(told, [
    ["sessions", ["GET /api/sessions"]],
    ["things", ["GET /api/things", "POST /api/things", "GET /api/things/{id}", "PUT /api/things/{id}"]],
    ["other", ["GET /healthz"]],
  ]);
});

test("operation lists its parameters, answers and curl call", () => {
  const post = apiGroups(api, SERVER)[1]!.operations[1]!;
  assert.equal(post.anchor, "post-api-things");
  assert.deepEqual(post.fields, [
    { name: "Idempotency-Key", where: "header", type: "string", required: false, description: "" },
    { name: "title", where: "body", type: "string", required: true, description: "What it is called." },
    { name: "size", where: "body", type: "integer", required: false, description: "" },
  ]);
  assert.deepEqual(post.answers, [{ status: "201", what: "Thing: made" }, { status: "401", what: "" }]);
  assert.match(post.curl, /-X POST .* -d '\{"title":"…"\}' "https:\/\/green\.test\/base\/api\/things"$/);
  const get = apiGroups(api, SERVER)[1]!.operations[2]!;
  assert.match(get.curl, /things\/\$ID"$/);
  assert.doesNotMatch(get.curl, /-X|-d/);
  const put = apiGroups(api, SERVER)[1]!.operations[3]!;
  assert.match(put.curl, /-X PUT -H "Content-Type: image\/png" --data-binary @FILE "http/);
});

test("type names", () => {
  assert.equal(typeName(undefined), "");
  assert.equal(typeName({ type: "array", items: { $ref: "#/a/Row" } }), "Row[]");
  assert.equal(typeName({ enum: ["a", "b"] }), '"a" | "b"');
  assert.equal(typeName({ oneOf: [{ type: "null" }, { $ref: "#/a/B" }] }), "B");
});
