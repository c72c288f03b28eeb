"""A repository of models on the Hugging Face Hub."""

import re
from pathlib import Path

from mast.core.errors import UserError
from mast.core.files import as_unicode
from mast.exports.original import Kind


def check_repository(repository: str) -> None:
    """Refuse to push before anything is written.

    Raises:
        UserError: It is no OWNER/NAME, or there is no token.
    """
    from huggingface_hub import get_token

    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository, re.ASCII):
        raise UserError(
            f"expected a repository of the Hugging Face Hub as OWNER/NAME, got {repository!r}"
        )
    if get_token() is None:
        raise UserError(
            "pushing needs a token of the Hugging Face Hub that may write: run "
            "`hf auth login`, or set HF_TOKEN"
        )


def push_folder(folder: Path, repository: str, kind: Kind) -> str:
    """Upload an export; files of the same names there are replaced.

    Args:
        folder: What `export_folder` wrote.
        repository: OWNER/NAME. It need not exist yet; it is made as the owner's settings say,
            which is public unless they say otherwise.
        kind: For the message of the commit.

    Returns:
        The repository's page.

    Raises:
        UserError: The upload failed.
    """
    from huggingface_hub import HfApi

    api = HfApi()
    try:
        page = api.create_repo(repository, exist_ok=True)
        api.upload_folder(
            repo_id=repository, folder_path=folder, commit_message=f"Upload the {kind}"
        )
    except Exception as error:  # of the network, of the Hub, of what the token may do
        reason = (as_unicode(str(error)).strip().splitlines() or [""])[0]
        raise UserError(
            f"cannot push to {repository} ({type(error).__name__}: {reason}); {folder} is whole, "
            "and the same command tries again"
        ) from error
    return str(page)
