// Light or dark: what the system asks for, until a person chooses.
const KEY = "sudonet-theme";
const system = window.matchMedia("(prefers-color-scheme: dark)");
const themeButton = byId("theme");

function remembered() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null; // pages from disk may not remember anything
  }
}

function isDark() {
  const theme = document.documentElement.dataset.theme;
  return theme ? theme === "dark" : system.matches;
}

function nameTheme() {
  themeButton.textContent = isDark() ? "Light" : "Dark";
  themeButton.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`);
}

function choose(theme) {
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // it lasts until the page is closed
  }
  nameTheme();
}

if (["light", "dark"].includes(remembered())) document.documentElement.dataset.theme = remembered();
themeButton.addEventListener("click", () => choose(isDark() ? "light" : "dark"));
system.addEventListener("change", nameTheme);
nameTheme();

// The section that is being read is marked in the navigation.
const links = new Map([...document.querySelectorAll(".top nav a")].map((a) => [a.hash.slice(1), a]));
const inView = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) {
      const link = links.get(entry.target.id);
      if (entry.isIntersecting) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  },
  { rootMargin: "-30% 0px -69% 0px" },
);
for (const id of links.keys()) inView.observe(byId(id));
