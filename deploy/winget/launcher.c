/* mlcc.exe: starts the Python beside it as `python -m mlcc ARGUMENTS` and ends with its exit code.
 *
 * Ctrl-C goes to both processes: this one ignores it and waits for the other. */
#include <stdio.h>
#include <wchar.h>
#include <windows.h>

#define MOST 32768 /* characters of a command line, the system's bound */

static BOOL WINAPI ignore(DWORD event) {
  return event == CTRL_C_EVENT || event == CTRL_BREAK_EVENT;
}

/* The path of this file; winget may start it through a link to it. */
static DWORD own_path(wchar_t *path) {
  DWORD length = GetModuleFileNameW(NULL, path, MOST);
  HANDLE file = CreateFileW(path, 0, FILE_SHARE_READ, NULL, OPEN_EXISTING, 0, NULL);
  if (file == INVALID_HANDLE_VALUE) return length;
  static wchar_t target[MOST];
  DWORD found = GetFinalPathNameByHandleW(file, target, MOST, 0);
  CloseHandle(file);
  if (found == 0 || found >= MOST) return length;
  const wchar_t *plain = wcsncmp(target, L"\\\\?\\", 4) == 0 ? target + 4 : target;
  wcscpy(path, plain);
  return (DWORD)wcslen(path);
}

/* What follows the program's name, as the user typed it. */
static const wchar_t *arguments(void) {
  const wchar_t *line = GetCommandLineW();
  int quoted = 0;
  for (; *line && (quoted || (*line != L' ' && *line != L'\t')); line++) quoted ^= *line == L'"';
  return line;
}

int wmain(void) {
  static wchar_t python[MOST], line[2 * MOST];
  DWORD length = own_path(python);
  while (length > 0 && python[length - 1] != L'\\') length--;
  wcscpy(python + length, L"python.exe");
  swprintf(line, 2 * MOST, L"\"%ls\" -m mlcc%ls", python, arguments());
  SetConsoleCtrlHandler(ignore, TRUE);
  STARTUPINFOW start = {.cb = sizeof start};
  PROCESS_INFORMATION child;
  if (!CreateProcessW(python, line, NULL, NULL, TRUE, 0, NULL, NULL, &start, &child)) {
    fwprintf(stderr, L"error: %ls cannot be started (Windows error %lu); install mlcc again\n", python,
             GetLastError());
    return 1;
  }
  DWORD code = 1;
  WaitForSingleObject(child.hProcess, INFINITE);
  GetExitCodeProcess(child.hProcess, &code);
  return (int)code;
}
