"""A repository of models on the Hugging Face Hub."""

import re
from pathlib import Path

from mast.core.errors import UserError
from mast.core.files import as_unicode
from mast.exports.original import Kind


class Hub:
    """Where a folder is uploaded to.

    Args:
        repository: OWNER/NAME. It need not exist yet; it is made as the owner's settings say,
            which is public unless they say otherwise.

    Raises:
        UserError: It is no such name, or there is no token.
    """

    def __init__(self, repository: str) -> None:
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
        self.repository = repository

    def push(self, folder: Path, kind: Kind) -> str:
        """Upload a folder; files of the same names there are replaced.

        Args:
            folder: An export.
            kind: Of what, for the message of the commit.

        Returns:
            The repository's page.

        Raises:
            UserError: The upload failed.
        """
        from huggingface_hub import HfApi

        api = HfApi()
        try:
            page = api.create_repo(self.repository, exist_ok=True)
            api.upload_folder(
                repo_id=self.repository, folder_path=folder, commit_message=f"Upload the {kind}"
            )
        except Exception as error:  # of the network, of the Hub, of what the token may do
            reason = (as_unicode(str(error)).strip().splitlines() or [""])[0]
            raise UserError(
                f"cannot push to {self.repository} ({type(error).__name__}: {reason}); {folder} is "
                "whole, and the same command tries again"
            ) from error
        return str(page)
