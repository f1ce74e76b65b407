// headrace manual, headrace completion: a man page and shell completions, made of the same tables
// as
// --help.

#include "cli/manual.h"

#include <cstdio>
#include <string>

#include "cli/command.h"
#include "cli/help.h"

namespace headrace {
namespace {

// Text for roff: backslashes escaped, and no line that begins with a control character.
std::string roff(std::string_view text) {
  std::string out;
  bool starts_line = true;
  for (const char c : text) {
    if (starts_line && (c == '.' || c == '\'')) out += "\\&";
    starts_line = c == '\n';
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

// Lines that begin with a space stand as they are.
std::string roff_manual(std::string_view manual) {
  std::string out;
  bool verbatim = false;
  while (!manual.empty()) {
    const size_t end = std::min(manual.find('\n'), manual.size());
    const std::string_view line = manual.substr(0, end);
    const bool is_verbatim = line.starts_with(' ');
    if (is_verbatim != verbatim) out += is_verbatim ? ".nf\n" : ".fi\n";
    verbatim = is_verbatim;
    if (!verbatim) out += ".PP\n";
    out += roff(line) + "\n";
    manual.remove_prefix(std::min(end + 1, manual.size()));
  }
  return verbatim ? out + ".fi\n" : out;
}

std::string names_of_commands(std::string_view separator) {
  std::string names;
  for (const CommandRow& row : command_rows()) {
    names += fmt::format("{}{}", names.empty() ? "" : separator, row.name);
  }
  return names;
}

std::string options_of(std::string_view command) {
  std::string names;
  for (const OptionRow& row : option_rows()) {
    if (!option_applies(row, command)) continue;
    names += fmt::format("{}{}", names.empty() ? "" : " ", row.name);
  }
  return names + " --help";
}

// The choices of every option that has some: "--isa) auto reference ...".
template <typename F>
void each_choice(const F& each) {
  std::string seen = " ";
  for (const OptionRow& row : option_rows()) {
    const std::string name(row.name);
    if (row.kind != OptionKind::kChoice || seen.find(" " + name + " ") != std::string::npos) {
      continue;
    }
    seen += name + " ";
    std::string choices(row.range);
    for (char& c : choices) c = c == '|' ? ' ' : c;
    each(name, choices);
  }
}

constexpr std::string_view kInstalled =
    "$(headrace list --json 2>/dev/null | "
    "sed -n 's/^{\"name\":\"\\([^\"]*\\)\".*/\\1/p')";

std::string bash_completion() {
  std::string text =
      "# headrace completion bash\n_headrace() {\n"
      "  local word=\"${COMP_WORDS[COMP_CWORD]}\" before=\"${COMP_WORDS[COMP_CWORD-1]}\"\n"
      "  local words=\"\"\n  case \"$before\" in\n";
  each_choice([&](const std::string& name, const std::string& choices) {
    text += fmt::format("    {}) COMPREPLY=($(compgen -W \"{}\" -- \"$word\")); return;;\n", name,
                        choices);
  });
  text += "  esac\n  if [ \"$COMP_CWORD\" = 1 ]; then\n    words=\"" + names_of_commands(" ") +
          "\"\n  else\n    case \"${COMP_WORDS[1]}\" in\n";
  for (const CommandRow& row : command_rows()) {
    text += fmt::format("      {}) words=\"{}\";;\n", row.name, options_of(row.name));
  }
  text += fmt::format(
      "    esac\n    case \"$word\" in -*) ;; *) words=\"$words {}\";; esac\n  fi\n", kInstalled);
  text +=
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
      "  declare -F __ltrim_colon_completions >/dev/null && __ltrim_colon_completions \"$word\"\n"
      "}\ncomplete -o default -F _headrace headrace\n";
  return text;
}

// In single quotes of a shell.
std::string in_quotes(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string fish_completion() {
  std::string text = "# headrace completion fish\n";
  for (const CommandRow& row : command_rows()) {
    text += fmt::format("complete -c headrace -n __fish_use_subcommand -f -a {} -d {}\n", row.name,
                        in_quotes(row.summary));
    for (const OptionRow& option : option_rows()) {
      if (!option_applies(option, row.name)) continue;
      const std::string name(option.name.substr(2));
      std::string takes = option.kind == OptionKind::kFlag ? "" : " -r";
      if (option.kind == OptionKind::kChoice) {
        std::string choices(option.range);
        for (char& c : choices) c = c == '|' ? ' ' : c;
        takes += " -f -a " + in_quotes(choices);
      }
      text +=
          fmt::format("complete -c headrace -n '__fish_seen_subcommand_from {}' -l {}{} -d {}\n",
                      row.name, name, takes, in_quotes(option.help));
    }
  }
  return text + fmt::format("complete -c headrace -n 'not __fish_use_subcommand' -a {}\n",
                            in_quotes("(headrace list --json 2>/dev/null | string replace -rf "
                                      "'^{\"name\":\"([^\"]*)\".*' '$1')"));
}

std::string zsh_completion() {
  std::string text = "#compdef headrace\nautoload -U +X bashcompinit && bashcompinit\n";
  return text + bash_completion();
}

}  // namespace

std::string man_page() {
  std::string text =
      ".TH HEADRACE 1\n.SH NAME\nheadrace \\- run and serve language models\n"
      ".SH SYNOPSIS\n.B headrace\nCOMMAND [OPTIONS]\n.SH COMMANDS\n";
  for (const CommandRow& row : command_rows()) {
    text += fmt::format(".SS headrace {}{}{}\n{}\n{}", row.name, row.arguments.empty() ? "" : " ",
                        roff(row.arguments), roff(row.summary), roff_manual(row.manual));
  }
  text += ".SH OPTIONS\n";
  for (const OptionRow& row : option_rows()) {
    text += fmt::format(".TP\n.B {}\n{}\nOf {}.\n", roff(row.name), roff(describe_option(row)),
                        roff(row.commands));
  }
  return text;
}

Result<std::string> completion_for(std::string_view shell) {
  if (shell == "bash") return bash_completion();
  if (shell == "zsh") return zsh_completion();
  if (shell == "fish") return fish_completion();
  return make_error(ErrorCode::kInvalidArgument,
                    "there is no completion for '{}', only for bash, zsh and fish", shell);
}

Result<int> run_manual(const Options&) {
  std::fputs(man_page().c_str(), stdout);
  return 0;
}

Result<int> run_completion(const Options& options) {
  const std::string text = TRY(completion_for(options.positionals().front()));
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace headrace
