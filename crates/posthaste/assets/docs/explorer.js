// Starts Swagger UI on the description that this server gives of itself. A key that is entered stays in the memory of the page.
"use strict";
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#explorer",
  presets: [SwaggerUIBundle.presets.apis],
  deepLinking: true,
  displayRequestDuration: true,
  docExpansion: "list",
  defaultModelsExpandDepth: 0,
  persistAuthorization: false,
  queryConfigEnabled: false,
  validatorUrl: null,
});
