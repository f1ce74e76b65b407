import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

export default defineConfig({
  plugins: [svelte()],
  build: {
    target: "es2022",
    // Data URIs and inline helpers would need a weaker content security policy.
    assetsInlineLimit: 0,
    modulePreload: false,
    // The chat, the laboratory and profiles.
    rolldownOptions: { input: ["index.html", "lab.html", "profile.html"] },
    // The licences of everything in the bundle travel with it.
    license: { fileName: "licenses.txt" },
  },
});
