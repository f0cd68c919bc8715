# Installs mlcc of a release on a Windows machine, in an environment of its own, and checks it:
#
#     powershell -ExecutionPolicy Bypass -File windows_check.ps1 RELEASE FOLDER
#
# RELEASE: the folder that `dev.py release` wrote. FOLDER: the demo model, compiled with
# --os windows. Needs Python 3.10 or later (64 bit), and desktop_check.py beside it. It must print
# what docs/windows.md shows. Untried: no Windows machine has run it.
param(
    [Parameter(Mandatory = $true)][string]$Release,
    [Parameter(Mandatory = $true)][string]$Folder
)
$ErrorActionPreference = "Stop"

function Invoke-Step([string]$Program, [string[]]$Words) {
    & $Program @Words
    if ($LASTEXITCODE -ne 0) { throw "$Program $Words ended with code $LASTEXITCODE" }
}

$place = Join-Path ([System.IO.Path]::GetTempPath()) "mlcc-check"
$python = Join-Path $place "Scripts\python.exe"
$index = ([System.Uri](Resolve-Path $Release).ProviderPath).AbsoluteUri + "/simple"
$check = Join-Path $PSScriptRoot "desktop_check.py"
Invoke-Step "py" @("-3", "-m", "venv", "--clear", $place)
Invoke-Step $python @("-m", "pip", "install", "--quiet", "--extra-index-url", $index, "mlcc[serve,vulkan]")
Invoke-Step $python @($check, (Resolve-Path $Folder).ProviderPath)
